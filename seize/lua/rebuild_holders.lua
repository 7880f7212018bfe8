--[[ Write a chunk of holders during a rebuild and renew its lease. Without shoppers it only renews.

  KEYS     [1] rules hash  [2] holders hash
  ARGV     [1] token  [2] lease_ms  [3] reset 0|1 (1 = forget all holders first), then per shopper: user_id, seq
  RETURNS  1 written, 0 the fence is not mine any more or Redis was restarted: stop ]]

local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
local gen = string.match(redis.call('INFO', 'replication'), 'master_replid:(%x+)')
local there = redis.call('HMGET', KEYS[1], 'fence', 'fence_gen')
if there[1] ~= ARGV[1] or there[2] ~= gen then
  return 0
end
redis.call('HSET', KEYS[1], 'fence_until_ms', string.format('%.0f', now_ms + ARGV[2]))
if ARGV[3] == '1' then
  redis.call('UNLINK', KEYS[2])
end
if #ARGV > 3 then
  redis.call('HSET', KEYS[2], unpack(ARGV, 4))
end
return 1
