--[[ Tell a drain, inside its transaction, whether its claims still count.

  KEYS     [1] rules hash  [2] queue hash
  ARGV     per claim: field, value
  RETURNS  epoch string ('' = no rules), then per claim 1 (field still holds that value) or 0 (gone) ]]

local reply = { redis.call('HGET', KEYS[1], 'epoch') or '' }
for i = 1, #ARGV, 2 do
  reply[#reply + 1] = redis.call('HGET', KEYS[2], ARGV[i]) == ARGV[i + 1] and 1 or 0
end
return reply
