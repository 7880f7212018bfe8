--[[ Stop an activity before its row is committed: pausing, voiding and an earlier end must not sell on meanwhile.

  KEYS     [1] rules hash
  ARGV     [1] uid  [2] state 'paused' or 'voided'
  RETURNS  1 closed, 0 another or no activity there

  Version 0 makes whatever gets committed newer, so a commit that fails opens the activity again. ]]

if redis.call('HGET', KEYS[1], 'uid') ~= ARGV[1] then
  return 0
end
redis.call('HSET', KEYS[1], 'state', ARGV[2], 'version', '0')
return 1
