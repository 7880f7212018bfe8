--[[ End a rebuild: rules, stock and epoch become those of the ledger, and the fence falls.

  KEYS     [1] rules hash  [2] stock hash  [3] holders hash
  ARGV     [1] token  [2] activity_id  [3] uid  [4] epoch  [5] version  [6] state  [7] starts_ms  [8] ends_ms
           [9] per_user  [10] total  [11] access JSON or ''  [12] claims int (coupons that are taken)
  RETURNS  1 done, 0 the fence is not mine any more or Redis was restarted

  Rules that became newer meanwhile stay. The stock may come out negative; it is never clamped. ]]

local gen = string.match(redis.call('INFO', 'replication'), 'master_replid:(%x+)')
local there = redis.call('HMGET', KEYS[1], 'fence', 'fence_gen', 'uid', 'version', 'total')
if there[1] ~= ARGV[1] or there[2] ~= gen then
  return 0
end
local total = tonumber(there[5])
if there[3] ~= ARGV[3] or not there[4] or not total or tonumber(ARGV[5]) > tonumber(there[4]) then
  redis.call('HSET', KEYS[1], 'uid', ARGV[3], 'version', ARGV[5], 'state', ARGV[6], 'starts_ms', ARGV[7],
    'ends_ms', ARGV[8], 'per_user', ARGV[9], 'total', ARGV[10], 'access', ARGV[11])
  total = tonumber(ARGV[10])
end
redis.call('HSET', KEYS[2], ARGV[2], string.format('%.0f', total - ARGV[12]))
redis.call('HSET', KEYS[3], '_', ARGV[4])
redis.call('PERSIST', KEYS[3])
redis.call('HSET', KEYS[1], 'epoch', ARGV[4], 'gen', gen)
redis.call('HDEL', KEYS[1], 'fence', 'fence_until_ms', 'fence_gen')
return 1
