--[[ Remove claims that the ledger now has, each only if its value is unchanged, and count them.

  The counts come after the removal: a server whose memory is full refuses a first write that needs memory,
  and lets through what follows one that needs none.

  KEYS     [1] queue hash  [2] drained counts: total; at = number of the current ten seconds,
           now = removed in them, before = removed in the ten before
  ARGV     the fields of all claims, then their values in the same order
  RETURNS  number of claims removed ]]

local CHUNK = 2000 -- fields a command: Lua's stack holds some thousand arguments

local claims = #ARGV / 2
local removed = 0
for first = 1, claims, CHUNK do
  local last = math.min(first + CHUNK - 1, claims)
  local values = redis.call('HMGET', KEYS[1], unpack(ARGV, first, last))
  local unchanged, count = {}, 0
  for i = first, last do
    if values[i - first + 1] == ARGV[claims + i] then
      count = count + 1
      unchanged[count] = ARGV[i]
    end
  end
  if count > 0 then
    removed = removed + redis.call('HDEL', KEYS[1], unpack(unchanged))
  end
end
if removed > 0 then
  local at = math.floor(tonumber(redis.call('TIME')[1]) / 10)
  local counts = redis.call('HMGET', KEYS[2], 'at', 'now')
  local last = tonumber(counts[1] or 0)
  if last == at then
    redis.call('HINCRBY', KEYS[2], 'now', removed)
  else
    local before = last == at - 1 and counts[2] or 0
    redis.call('HSET', KEYS[2], 'at', at, 'now', removed, 'before', before)
  end
  redis.call('HINCRBY', KEYS[2], 'total', removed)
end
return removed
