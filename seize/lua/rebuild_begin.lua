--[[ Fence an activity off and become the owner of its rebuild. While the fence stands nothing is sold.

  KEYS     [1] rules hash
  ARGV     [1] token  [2] lease_ms
  RETURNS  0 the fence is mine, else the ms that another owner's lease still runs ]]

local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
local gen = string.match(redis.call('INFO', 'replication'), 'master_replid:(%x+)')
local there = redis.call('HMGET', KEYS[1], 'fence', 'fence_until_ms', 'fence_gen')
if there[1] and there[1] ~= ARGV[1] and there[3] == gen and now_ms < tonumber(there[2]) then
  return tonumber(there[2]) - now_ms
end
redis.call('HSET', KEYS[1], 'fence', ARGV[1], 'fence_until_ms', string.format('%.0f', now_ms + ARGV[2]),
  'fence_gen', gen)
return 0
