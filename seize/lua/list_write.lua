--[[ Replace the list of activities unless a later reader of the database has already written.

  KEYS     [1] list string  [2] list_stamp string
  ARGV     [1] stamp int (µs of Redis' clock at which the database was read)  [2] JSON
  RETURNS  1 written, 0 what is there is newer ]]

local there = tonumber(redis.call('GET', KEYS[2]) or nil)
local time = redis.call('TIME')
local now_us = time[1] * 1000000 + time[2] -- a stamp of the future comes from a clock that was set back
if there and there <= now_us and there > tonumber(ARGV[1]) and redis.call('EXISTS', KEYS[1]) == 1 then
  return 0
end
redis.call('SET', KEYS[1], ARGV[2])
redis.call('SET', KEYS[2], ARGV[1])
return 1
