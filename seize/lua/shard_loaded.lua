--[[ Declare that all rules of a shard are there, so that an unknown id may be answered with 404.

  KEYS     [1] marker hash
  ARGV     [1] token that was written before the comparison began
  RETURNS  1 declared, 0 the token is gone: something emptied Redis meanwhile, compare again ]]

if redis.call('HGET', KEYS[1], 'token') ~= ARGV[1] then
  return 0
end
redis.call('HSET', KEYS[1], 'loaded', string.match(redis.call('INFO', 'replication'), 'master_replid:(%x+)'))
return 1
