--[[ Read the activity list and the clock that its times are compared with.

  KEYS     [1] list string
  ARGV     none
  RETURNS  text string ('' = absent), then Unix time: seconds string, µs string ]]

local time = redis.call('TIME')
return { redis.call('GET', KEYS[1]) or '', time[1], time[2] }
