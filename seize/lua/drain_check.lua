--[[ Tell a drain, inside its transaction, whether its claims still count.

  KEYS     [1] rules hash  [2] queue hash
  ARGV     per claim: field, value
  RETURNS  epoch string ('' = no rules), then per claim 1 (field still holds that value) or 0 (gone) ]]

local CHUNK = 1000 -- fields a command: Lua's stack holds some thousand arguments

local reply = { redis.call('HGET', KEYS[1], 'epoch') or '' }
for first = 1, #ARGV, 2 * CHUNK do
  local fields = {}
  for i = first, math.min(first + 2 * CHUNK, #ARGV) - 1, 2 do
    fields[#fields + 1] = ARGV[i]
  end
  local values = redis.call('HMGET', KEYS[2], unpack(fields))
  for i = 1, #fields do
    reply[#reply + 1] = values[i] == ARGV[first + 2 * i - 1] and 1 or 0
  end
end
return reply
