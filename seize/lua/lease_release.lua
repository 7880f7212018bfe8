--[[ Give back a lease that is still mine.

  KEYS     [1] lease string
  ARGV     [1] token
  RETURNS  1 released, 0 it was not mine any more ]]

if redis.call('GET', KEYS[1]) ~= ARGV[1] then
  return 0
end
return redis.call('DEL', KEYS[1])
