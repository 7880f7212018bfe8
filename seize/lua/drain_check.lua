--[[ Tell a drain, inside its transaction, whether its claims still count.

  KEYS     [1] rules hash  [2] queue hash
  ARGV     the fields of all claims, then their values in the same order
  RETURNS  epoch string ('' = no rules), then per claim 1 (field still holds that value) or 0 (gone) ]]

local CHUNK = 2000 -- fields a command: Lua's stack holds some thousand arguments

local claims = #ARGV / 2
local reply = { redis.call('HGET', KEYS[1], 'epoch') or '' }
for first = 1, claims, CHUNK do
  local last = math.min(first + CHUNK - 1, claims)
  local values = redis.call('HMGET', KEYS[2], unpack(ARGV, first, last))
  for i = first, last do
    reply[i + 1] = values[i - first + 1] == ARGV[claims + i] and 1 or 0
  end
end
return reply
