--[[ Put a whole new list of who is let in and kept out in the place of the one before.

  KEYS     [1] listed hash  [2] listed_new hash, under a name of its own
  ARGV     [1] uid  [2] version int  [3] shoppers int  [4] force 0|1 (1 = also in the place of one as new)
  RETURNS  1 it is in place, 0 one as new was there already, -1 it is not whole: Redis was emptied, or took too long

  The mark is written last, and only when all are there: a list that was written in part is never taken for one. It
  names the activity by uid, so that the list of another one, which had its id before, is none. ]]

local there_uid, there_version = string.match(redis.call('HGET', KEYS[1], '_') or '', '^(%w+):(%d+)$')
if ARGV[4] == '0' and there_uid == ARGV[1] and tonumber(there_version) >= tonumber(ARGV[2]) then
  redis.call('UNLINK', KEYS[2])
  return 0
end
if redis.call('HLEN', KEYS[2]) ~= tonumber(ARGV[3]) then
  redis.call('UNLINK', KEYS[2])
  return -1
end
redis.call('HSET', KEYS[2], '_', ARGV[1] .. ':' .. ARGV[2])
redis.call('PERSIST', KEYS[2])
redis.call('RENAME', KEYS[2], KEYS[1])
return 1
