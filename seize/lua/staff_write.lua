--[[ Replace the set of those who belong to the back office.

  KEYS     [1] staff set
  ARGV     user ids
  RETURNS  how many there are ]]

redis.call('DEL', KEYS[1])
for i = 1, #ARGV do
  redis.call('SADD', KEYS[1], ARGV[i])
end
return #ARGV
