--[[ Put a whole new list of who is let in and kept out in the place of the one before.

  KEYS     [1] listed hash  [2] listed_new hash, under a name of its own
  ARGV     [1] version int
  RETURNS  1 it is in place, 0 one as new was there already

  The version is written last: a list that was only written in part is never taken for one. ]]

local there = tonumber(redis.call('HGET', KEYS[1], '_') or nil)
if there and there >= tonumber(ARGV[1]) then
  redis.call('UNLINK', KEYS[2])
  return 0
end
redis.call('HSET', KEYS[2], '_', ARGV[1])
redis.call('PERSIST', KEYS[2])
redis.call('RENAME', KEYS[2], KEYS[1])
return 1
