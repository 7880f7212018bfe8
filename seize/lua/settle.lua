--[[ Forget who held coupons of an activity that is over and in the ledger; its small rules hash stays for its answer.

  KEYS     [1] rules hash  [2] stock hash  [3] holders hash  [4] listed hash
  ARGV     [1] activity_id  [2] uid  [3] epoch
  RETURNS  1 forgotten, 0 not over by this clock, another activity, or a rebuild is under way ]]

local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
local there = redis.call('HMGET', KEYS[1], 'uid', 'epoch', 'ends_ms', 'fence')
if there[1] ~= ARGV[2] or there[2] ~= ARGV[3] or there[4] or now_ms < tonumber(there[3]) then
  return 0
end
redis.call('UNLINK', KEYS[3], KEYS[4])
redis.call('HDEL', KEYS[2], ARGV[1])
return 1
