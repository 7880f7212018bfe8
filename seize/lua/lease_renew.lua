--[[ Prolong a lease that is still mine.

  KEYS     [1] lease string
  ARGV     [1] token  [2] lease_ms
  RETURNS  1 prolonged, 0 it is not mine any more ]]

if redis.call('GET', KEYS[1]) ~= ARGV[1] then
  return 0
end
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return 1
