--[[ Bring an activity that is already in Redis up to a newer version of its row. Never touches who holds what.

  KEYS     [1] rules hash  [2] stock hash  [3] holders hash  [4] listed hash
  ARGV     [1] activity_id  [2] uid  [3] epoch  [4] version  [5] state  [6] starts_ms  [7] ends_ms
           [8] per_user  [9] total  [10] access JSON or ''  [11] lists' version or ''
           [12] settled 0|1 (1 = ended and reconciled: only its answer is kept)
  RETURNS  'applied'  the rules are now those of the row
           'current'  they already were, or are newer
           'lists'    the lists that the rules speak of are not here: write them first
           'fenced'   a rebuild is under way and will use these rules
           'rebuild'  what is there cannot be trusted, or nothing is there

  The total is absolute and only grows; the stock moves by the difference, so that repeating is harmless. ]]

local activity_id, uid, epoch, version = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])
local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
local gen = string.match(redis.call('INFO', 'replication'), 'master_replid:(%x+)')
local there = redis.call('HMGET', KEYS[1], 'uid', 'epoch', 'gen', 'version', 'total', 'fence')
local newer = there[1] ~= uid or not there[4] or version > tonumber(there[4])

local function rules_write()
  redis.call('HSET', KEYS[1], 'uid', uid, 'version', ARGV[4], 'state', ARGV[5], 'starts_ms', ARGV[6],
    'ends_ms', ARGV[7], 'per_user', ARGV[8], 'total', ARGV[9], 'access', ARGV[10])
end

if ARGV[12] == '1' and now_ms >= tonumber(ARGV[7]) then
  local remains = redis.call('EXISTS', KEYS[3]) + redis.call('HEXISTS', KEYS[2], activity_id)
  if not newer and not there[6] and there[2] == epoch and remains == 0 then
    return 'current'
  end
  -- Holders of a settled activity come from an old file: the ledger has them all, and nothing is sold any more.
  redis.call('UNLINK', KEYS[3], KEYS[4])
  redis.call('HDEL', KEYS[2], activity_id)
  redis.call('HDEL', KEYS[1], 'fence', 'fence_until_ms', 'fence_gen')
  rules_write()
  redis.call('HSET', KEYS[1], 'epoch', epoch, 'gen', gen)
  return 'applied'
end
if there[6] then
  if newer and (not there[1] or there[1] == uid) then
    rules_write()
  end
  return 'fenced'
end
if there[1] ~= uid or there[2] ~= epoch or there[3] ~= gen or redis.call('HGET', KEYS[3], '_') ~= epoch
  or redis.call('HEXISTS', KEYS[2], activity_id) == 0 then
  return 'rebuild'
end
if ARGV[11] ~= '' then
  local list_uid, list_version = string.match(redis.call('HGET', KEYS[4], '_') or '', '^(%w+):(%d+)$')
  if list_uid ~= uid or tonumber(list_version) < tonumber(ARGV[11]) then
    return 'lists'
  end
end
if not newer then
  return 'current'
end
local growth = tonumber(ARGV[9]) - tonumber(there[5])
if growth < 0 then
  return 'rebuild'
end
if growth > 0 then
  redis.call('HINCRBY', KEYS[2], activity_id, growth)
end
rules_write()
redis.call('PERSIST', KEYS[3])
return 'applied'
