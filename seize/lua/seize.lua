--[[ Claim coupons of one activity for one or more shoppers. Every check comes before every write.

  KEYS     [1] marker hash  [2] rules hash  [3] stock hash  [4] holders hash  [5] queue hash
  ARGV     [1] activity_id string, then per shopper: user_id string, wanted seq int (0 = next)
  RETURNS  now_ms int, starts_ms int (0 = unknown), then per shopper either
           {activity_id string, seq int, seized_ms int (0 = no longer queued), replay 0|1}
           or {code int, held int}
  CODES    -1 LIMIT_REACHED  -2 SOLD_OUT  -3 NOT_STARTED  -4 ENDED  -5 PAUSED  -6 VOIDED
           -7 UNKNOWN_ACTIVITY  -8 NOT_READY

  Ids stay strings: a Lua number would round ids of 17 digits and more.
  Shoppers of one call are served in order; one who appears twice is served as if by two calls. ]]

local activity_id = ARGV[1]
local shoppers = (#ARGV - 1) / 2
local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
local gen = string.match(redis.call('INFO', 'replication'), 'master_replid:(%x+)')

local rules = redis.call('HMGET', KEYS[2],
  'uid', 'epoch', 'gen', 'state', 'fence', 'starts_ms', 'ends_ms', 'per_user')
local uid, epoch, rules_gen, state, fence = rules[1], rules[2], rules[3], rules[4], rules[5]
local starts_ms, ends_ms, per_user = tonumber(rules[6]), tonumber(rules[7]), tonumber(rules[8])

local reply = { now_ms, starts_ms or 0 }

local function refuse_all(code)
  for i = 1, shoppers do
    reply[i + 2] = { code, 0 }
  end
  return reply
end

-- Is the desk open at all? -----------------------------------------------------------------------
if not uid and not fence then
  local loaded = redis.call('HGET', KEYS[1], 'loaded')
  return refuse_all(loaded == gen and -7 or -8)
end
if uid and ends_ms and now_ms >= ends_ms and redis.call('EXISTS', KEYS[4]) == 0 then
  return refuse_all(-4)
end
local left = tonumber(redis.call('HGET', KEYS[3], activity_id) or nil)
if fence or rules_gen ~= gen or not left or not (starts_ms and ends_ms and per_user) then
  return refuse_all(-8)
end
redis.call('HLEN', KEYS[5]) -- a queue of another type stops the script here, not after a write

local users = { '_' }
for i = 1, shoppers do
  users[i + 1] = ARGV[2 * i]
end
local holders = redis.call('HMGET', KEYS[4], unpack(users))
if holders[1] ~= epoch then
  return refuse_all(-8)
end

-- What does the clock, or the staff, say to everybody who holds no coupon yet? --------------------
local closed = nil
if state == 'voided' then
  closed = -6
elseif state ~= 'open' then
  closed = -5
elseif now_ms < starts_ms then
  closed = -3
elseif now_ms >= ends_ms then
  closed = -4
end

-- One shopper after the other ----------------------------------------------------------------------
local held_by, new_holders, new_claims, granted = {}, {}, {}, 0
local claim_value = string.format('%.0f:%s', now_ms, uid)

local function replay(user_id, seq)
  if held_by[user_id] and seq > held_by[user_id].before then
    return { activity_id, seq, now_ms, 1 } -- won earlier in this very call
  end
  local value = redis.call('HGET', KEYS[5], activity_id .. ':' .. user_id .. ':' .. string.format('%.0f', seq))
  return { activity_id, seq, value and tonumber(string.match(value, '^(%d+):')) or 0, 1 }
end

for i = 1, shoppers do
  local user_id, wanted = ARGV[2 * i], tonumber(ARGV[2 * i + 1])
  local held = held_by[user_id] and held_by[user_id].now or tonumber(holders[i + 1] or '0')
  if wanted > 0 and wanted <= held then
    reply[i + 2] = replay(user_id, wanted)
  elseif held >= per_user or wanted > held + 1 then
    reply[i + 2] = { -1, held }
  elseif closed then
    reply[i + 2] = { closed, held }
  elseif left - granted <= 0 then
    reply[i + 2] = { -2, held }
  else
    local seq = string.format('%.0f', held + 1)
    granted = granted + 1
    held_by[user_id] = { before = held_by[user_id] and held_by[user_id].before or held, now = held + 1 }
    new_holders[#new_holders + 1] = user_id
    new_holders[#new_holders + 1] = seq
    new_claims[#new_claims + 1] = activity_id .. ':' .. user_id .. ':' .. seq
    new_claims[#new_claims + 1] = claim_value
    reply[i + 2] = { activity_id, held + 1, now_ms, 0 }
  end
end

-- All writes, unconditional --------------------------------------------------------------------------
if granted > 0 then
  redis.call('HINCRBY', KEYS[3], activity_id, -granted)
  redis.call('HSET', KEYS[4], unpack(new_holders))
  redis.call('HSET', KEYS[5], unpack(new_claims))
end
return reply
