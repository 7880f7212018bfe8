--[[ Read what Redis holds of many activities of one shard, in one instant.

  KEYS     [1] marker hash  [2] stock hash, then per activity: rules hash, holders hash, listed hash
  ARGV     activity ids
  RETURNS  now_ms int, gen string, loaded string or nil, then per activity, each a string or '',
           {uid, epoch, gen, version, fence, fence_until_ms, fence_gen, holders' epoch, stock, list's mark} ]]

local time = redis.call('TIME')
local reply = {
  time[1] * 1000 + math.floor(time[2] / 1000),
  string.match(redis.call('INFO', 'replication'), 'master_replid:(%x+)'),
  redis.call('HGET', KEYS[1], 'loaded') or '',
}
for i = 1, #ARGV do
  local found = redis.call('HMGET', KEYS[3 * i], 'uid', 'epoch', 'gen', 'version', 'fence', 'fence_until_ms',
    'fence_gen')
  found[8] = redis.call('HGET', KEYS[3 * i + 1], '_')
  found[9] = redis.call('HGET', KEYS[2], ARGV[i])
  found[10] = redis.call('HGET', KEYS[3 * i + 2], '_')
  for field = 1, 10 do
    found[field] = found[field] or ''
  end
  reply[i + 3] = found
end
return reply
