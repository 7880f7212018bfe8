--[[ What an activity's challenge takes, and when it is set: the clock that judges it is the one that sets it.

  KEYS     [1] rules hash
  ARGV     none
  RETURNS  access JSON or '', now_ms int ]]

local time = redis.call('TIME')
return { redis.call('HGET', KEYS[1], 'access') or '', time[1] * 1000 + math.floor(time[2] / 1000) }
