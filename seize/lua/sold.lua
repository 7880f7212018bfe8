--[[ Read in one instant how much of an activity is sold.

  KEYS     [1] rules hash  [2] stock hash  [3] holders hash
  ARGV     [1] activity_id
  RETURNS  {epoch string, sold int, holders int}, or {} when the activity is not open for reading
           (rules, stock or epoch missing, a fence, or rules of another process) ]]

local gen = string.match(redis.call('INFO', 'replication'), 'master_replid:(%x+)')
local rules = redis.call('HMGET', KEYS[1], 'epoch', 'gen', 'total', 'fence')
local left = redis.call('HGET', KEYS[2], ARGV[1])
if not rules[1] or rules[2] ~= gen or rules[4] or not left or redis.call('HGET', KEYS[3], '_') ~= rules[1] then
  return {}
end
return { rules[1], rules[3] - left, redis.call('HLEN', KEYS[3]) - 1 }
