--[[ Claim coupons of one activity for one or more shoppers. Every check comes before every write.

  KEYS     [1] marker hash  [2] rules hash  [3] stock hash  [4] holders hash  [5] queue hash
           [6] listed hash  [7] staff set  [8] asked_even hash  [9] asked_odd hash
  ARGV     [1] activity_id string  [2] demand int (asks per second, as whoever calls sees them), then per shopper:
           user_id string, wanted seq int (0 = next; below zero: tell of a win of that seq, claim nothing),
           proof int (0 = none, -1 = one that is not good, else the challenge's ms; good for 240 s)
  RETURNS  now_ms int, starts_ms int (0 = unknown), then per shopper either
           {activity_id string, seq int, seized_ms int (0 = no longer queued), replay 0|1}
           or {code int, held int}
           or {-9, held int, wait_ms int, quota int, window_ms int, name string}; {-9, held int} to whom claims nothing
  CODES    -1 LIMIT_REACHED  -2 SOLD_OUT  -3 NOT_STARTED  -4 ENDED  -5 PAUSED  -6 VOIDED
           -7 UNKNOWN_ACTIVITY  -8 NOT_READY  -9 TOO_MANY_REQUESTS  -10 NOT_ELIGIBLE
           -11 CHALLENGE_REQUIRED  -12 CHALLENGE_INVALID

  Ids stay strings: a Lua number would round ids of 17 digits and more.
  Shoppers of one call are served in order; one who appears twice is served as if by two calls. ]]

local activity_id = ARGV[1]
local demand = tonumber(ARGV[2])
local shoppers = (#ARGV - 2) / 3
local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
local now_us = time[1] * 1000000 + time[2] -- whole numbers far below 2^53: limits are counted without rounding
local gen = string.match(redis.call('INFO', 'replication'), 'master_replid:(%x+)')

local rules = redis.call('HMGET', KEYS[2],
  'uid', 'epoch', 'gen', 'state', 'fence', 'starts_ms', 'ends_ms', 'per_user', 'access', 'rate_due_us')
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
  users[i + 1] = ARGV[3 * i]
end
local holders = redis.call('HMGET', KEYS[4], unpack(users))
if holders[1] ~= epoch then
  return refuse_all(-8)
end

-- Who may ask at all, and how often? ---------------------------------------------------------------
local access = rules[9] and rules[9] ~= '' and cjson.decode(rules[9]) or {}
local listed, staff, lacks_list = {}, nil, false
if access.lists then
  listed = redis.call('HMGET', KEYS[6], unpack(users))
  local list_uid, list_version = string.match(listed[1] or '', '^(%w+):(%d+)$')
  -- Who is on a list that is not here yet must be neither let in nor kept out.
  lacks_list = list_uid ~= uid or tonumber(list_version) < access.lists
end
if access.staff then
  staff = redis.call('SMISMEMBER', KEYS[7], unpack(users))
end

local function may_ask(i)
  if listed[i + 1] == 'deny' then
    return false
  elseif access.staff then
    return staff[i + 1] == 1
  elseif listed[i + 1] == 'allow' or not access.percent then
    return true
  end
  local share = string.sub(redis.sha1hex(uid .. ':' .. users[i + 1]), 1, 8)
  return tonumber(share, 16) % 10000 < access.percent * 100
end

-- What is remembered of shoppers lives in two hashes by turns, so that it is forgotten without being looked for.
local turn = math.floor(now_ms / 300000)
local is_even = turn % 2 == 0
local asked_key = is_even and KEYS[8] or KEYS[9]
local asked_before_key = is_even and KEYS[9] or KEYS[8]
local turn_is_new = true
local asked, asked_before = nil, nil
if access.asks or access.challenge then
  turn_is_new = redis.call('HGET', asked_key, '_') ~= tostring(turn)
  asked = not turn_is_new and redis.call('HMGET', asked_key, unpack(users))
  asked_before = redis.call('HGET', asked_before_key, '_') == tostring(turn - 1)
    and redis.call('HMGET', asked_before_key, unpack(users))
end
local remembered = {} -- user id → {due_us, proof}, what is new

-- When the next ask is due, µs, and the last challenge that was used, ms.
local function memory_of(i)
  local new = remembered[users[i + 1]]
  if new then
    return new[1], new[2]
  end
  local text = asked and asked[i + 1] or asked_before and asked_before[i + 1]
  if not text then
    return 0, 0
  end
  local due_us, proof = string.match(text, '^(%S+) (%S+)$')
  return tonumber(due_us), tonumber(proof)
end

local function remember(i, due_us, proof)
  local old_due_us, old_proof = memory_of(i)
  remembered[users[i + 1]] = { due_us or old_due_us, proof or old_proof }
end

-- GCRA: ``burst`` at once, then one each step; together never more than ``quota`` in any window. ms to wait, new due.
local function gcra(due_us, quota, window_ms, burst)
  local step_us = math.ceil(window_ms * 1000 / (quota - burst + 1))
  -- Nothing is ever due later than in a window: the limit was loosened since, or the clock was ahead. One may come now.
  if due_us > now_us + window_ms * 1000 then
    due_us = now_us + (burst - 1) * step_us
  end
  local new_due_us = math.max(due_us, now_us) + step_us
  return math.ceil((new_due_us - now_us - burst * step_us) / 1000), new_due_us
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
local rate_due_us = tonumber(rules[10] or '0')
local needs_proof = access.challenge == 'always' or access.challenge == 'pressure' and demand > access.pressure

local function replay(user_id, seq)
  if held_by[user_id] and seq > held_by[user_id].before then
    return { activity_id, seq, now_ms, 1 } -- won earlier in this very call
  end
  local value = redis.call('HGET', KEYS[5], activity_id .. ':' .. user_id .. ':' .. string.format('%.0f', seq))
  return { activity_id, seq, value and tonumber(string.match(value, '^(%d+):')) or 0, 1 }
end

-- nil and when the next ask is due after this one, or why this shopper must ask more slowly.
local function asks_too_often(i, held)
  if not access.asks then
    return nil
  end
  local wait_ms, due_us = gcra(memory_of(i), access.asks, access.window_ms, math.ceil(access.asks / 2))
  if wait_ms > 0 then
    return { -9, held, wait_ms, access.asks, access.window_ms, 'activity-shopper' } -- not counted: it costs no write
  end
  return nil, due_us
end

-- nil, or why the work was not done for this coupon.
local function lacks_proof(i, held, proof)
  if not needs_proof then
    return nil
  end
  local _, used = memory_of(i)
  if proof > used and proof > now_ms - 240000 then
    return nil
  end
  return { proof == 0 and -11 or -12, held }
end

-- nil, or why the activity gives out no more at this moment.
local function is_too_fast(held)
  if not access.rate then
    return nil
  end
  local rate = access.rate
  if access.ramp_ms and now_ms < starts_ms + access.ramp_ms then
    rate = math.max(1, math.floor(rate * (0.1 + 0.9 * (now_ms - starts_ms) / access.ramp_ms)))
  end
  local wait_ms, due_us = gcra(rate_due_us, rate, 1000, math.ceil(rate / 5))
  if wait_ms > 0 then
    return { -9, held, wait_ms, rate, 1000, 'activity' }
  end
  rate_due_us = due_us
  return nil
end

local function grant(i, held, proof)
  local user_id, seq = users[i + 1], string.format('%.0f', held + 1)
  granted = granted + 1
  held_by[user_id] = { before = held_by[user_id] and held_by[user_id].before or held, now = held + 1 }
  new_holders[#new_holders + 1] = user_id
  new_holders[#new_holders + 1] = seq
  new_claims[#new_claims + 1] = activity_id .. ':' .. user_id .. ':' .. seq
  new_claims[#new_claims + 1] = claim_value
  if needs_proof then
    remember(i, nil, proof)
  end
  return { activity_id, held + 1, now_ms, 0 }
end

for i = 1, shoppers do
  local user_id, wanted, proof = users[i + 1], tonumber(ARGV[3 * i + 1]), tonumber(ARGV[3 * i + 2])
  local held = held_by[user_id] and held_by[user_id].now or tonumber(holders[i + 1] or '0')
  local seq = math.abs(wanted)
  if seq > 0 and seq <= held then
    reply[i + 2] = replay(user_id, seq) -- whatever has changed since: who has won is never refused
  elseif wanted < 0 then
    reply[i + 2] = { -9, held }
  elseif held >= per_user or wanted > held + 1 then
    reply[i + 2] = { -1, held }
  elseif lacks_list then
    reply[i + 2] = { -8, held }
  elseif not may_ask(i) then
    reply[i + 2] = { -10, held }
  elseif closed and closed ~= -3 then
    reply[i + 2] = { closed, held }
  elseif not closed and left - granted <= 0 then
    reply[i + 2] = { -2, held }
  else
    local answer, due_us = asks_too_often(i, held)
    if not answer then
      answer = closed and { closed, held } or lacks_proof(i, held, proof)
      if answer and due_us and answer[1] ~= -11 then
        remember(i, due_us)
      end
      -- What is won is limited by ``per_user``; who is told to come back, or to work first, did nothing wrong.
      answer = answer or is_too_fast(held) or grant(i, held, proof)
    end
    reply[i + 2] = answer
  end
end

-- All writes, unconditional --------------------------------------------------------------------------
if granted > 0 then
  redis.call('HINCRBY', KEYS[3], activity_id, -granted)
  redis.call('HSET', KEYS[4], unpack(new_holders))
  redis.call('HSET', KEYS[5], unpack(new_claims))
  if access.rate then
    redis.call('HSET', KEYS[2], 'rate_due_us', string.format('%.0f', rate_due_us))
  end
end
if next(remembered) then
  local memories = { '_', tostring(turn) }
  for user_id, memory in pairs(remembered) do
    memories[#memories + 1] = user_id
    memories[#memories + 1] = string.format('%.0f %.0f', memory[1], memory[2])
  end
  if turn_is_new then
    redis.call('UNLINK', asked_key)
  end
  redis.call('HSET', asked_key, unpack(memories))
  redis.call('PEXPIRE', asked_key, 600000)
end
return reply
