--[[ Add what one process has counted of an activity since it last wrote. The same number again changes nothing.

  KEYS     [1] rules hash  [2] stock hash  [3] counts hash  [4] seconds hash  [5] buckets hash
  ARGV     [1] activity_id  [2] process string  [3] number int, one more for each call of the process  [4] ttl_s int
           then, per second: second int (Unix time), outcomes int (how many pairs follow), pairs of name, count int
  RETURNS  1 counted, 0 it was counted before, -1 Redis has no rules of this activity: nothing is counted

  counts   name of an outcome -> how often; uid = whose counts these are; life = told apart by who wrote first;
           width = seconds a bucket; p:<process> = its last number
  seconds  second % 720 -> second:won:refused:left, a ring of the last twelve minutes; left = stock when it was written
  buckets  <first second>:w and :r -> won and refused; from an hour before the start to an hour after the end ]]

local RING, AROUND = 720, 3600

local rules = redis.call('HMGET', KEYS[1], 'uid', 'starts_ms', 'ends_ms')
local uid, starts, ends = rules[1], tonumber(rules[2]), tonumber(rules[3])
if not (uid and starts and ends) then
  return -1
end
local there = redis.call('HMGET', KEYS[3], 'uid', 'width', 'p:' .. ARGV[2])
local fresh = there[1] ~= uid
if not fresh and there[3] and tonumber(there[3]) >= tonumber(ARGV[3]) then
  return 0
end
local left = redis.call('HGET', KEYS[2], ARGV[1]) or ''
redis.call('HLEN', KEYS[4]) -- a key of another type stops the script here, not after a write
local bucket_count = redis.call('HLEN', KEYS[5])

starts, ends = math.floor(starts / 1000), math.ceil(ends / 1000)
local width = not fresh and tonumber(there[2]) or nil
if not width then
  local hours = (ends - starts) / 3600
  width = hours <= 4 and 10 or hours <= 24 and 60 or hours <= 240 and 600 or 3600
end

-- What is to be written: sums by name, by slot of the ring, by bucket --------------------------------
local sums, buckets, ring_fields, newest = {}, {}, {}, nil
local at = 5
while ARGV[at] do
  local second, outcomes = tonumber(ARGV[at]), tonumber(ARGV[at + 1])
  local won, refused = 0, 0
  for pair = at + 2, at + 2 * outcomes, 2 do
    local name, count = ARGV[pair], tonumber(ARGV[pair + 1])
    sums[name] = (sums[name] or 0) + count
    if name == 'WON' then
      won = won + count
    elseif name ~= 'REPLAY' then
      refused = refused + count
    end
  end
  local slot = string.format('%.0f', second % RING)
  local old = fresh and '' or redis.call('HGET', KEYS[4], slot) or ''
  local old_second, old_won, old_refused, old_left = string.match(old, '^(%d+):(%d+):(%d+):(%-?%d*)$')
  old_second = tonumber(old_second or 0)
  if old_second == second then
    ring_fields[slot] = { second, old_won + won, old_refused + refused, old_left }
  elseif old_second < second then
    ring_fields[slot] = { second, won, refused, '' }
  end
  newest = ring_fields[slot] and slot or newest -- seconds come in order
  if second >= starts - AROUND and second < ends + AROUND then
    local first = string.format('%.0f', second - second % width)
    buckets[first] = buckets[first] or { 0, 0 }
    buckets[first][1], buckets[first][2] = buckets[first][1] + won, buckets[first][2] + refused
  end
  at = at + 2 + 2 * outcomes
end
if newest then
  ring_fields[newest][4] = left
end

-- All writes, unconditional --------------------------------------------------------------------------
if fresh then
  redis.call('UNLINK', KEYS[3])
  redis.call('UNLINK', KEYS[4])
  redis.call('UNLINK', KEYS[5])
  bucket_count = 0
end
if fresh then
  redis.call('HSET', KEYS[3], 'life', ARGV[2] .. ':' .. ARGV[3])
end
redis.call('HSET', KEYS[3], 'uid', uid, 'width', width, 'p:' .. ARGV[2], ARGV[3])
for name, count in pairs(sums) do
  redis.call('HINCRBY', KEYS[3], name, count)
end
for slot, fields in pairs(ring_fields) do
  redis.call('HSET', KEYS[4], slot, string.format('%.0f:%.0f:%.0f:%s', unpack(fields)))
end
for first, both in pairs(buckets) do
  redis.call('HINCRBY', KEYS[5], first .. ':w', both[1])
  redis.call('HINCRBY', KEYS[5], first .. ':r', both[2])
  bucket_count = bucket_count + 1
end
redis.call('EXPIRE', KEYS[3], ARGV[4])
redis.call('EXPIRE', KEYS[4], ARGV[4])
if bucket_count > 0 then
  redis.call('EXPIRE', KEYS[5], ARGV[4])
end
return 1
