--[[ The same endpoint inside nginx: HS256 by OpenSSL, a keep-alive pool to Redis, one EVALSHA a request. ]]

local ffi = require 'ffi'
local cjson = require 'cjson'
local base64 = require 'ngx.base64'
local redis = require 'nginx.redis'

ffi.cdef [[
  typedef struct evp_md_st EVP_MD;
  typedef struct hmac_ctx_st HMAC_CTX;
  const EVP_MD *EVP_sha256(void);
  HMAC_CTX *HMAC_CTX_new(void);
  int HMAC_Init_ex(HMAC_CTX *ctx, const void *key, int key_length, const EVP_MD *md, void *engine);
  int HMAC_Update(HMAC_CTX *ctx, const unsigned char *data, size_t length);
  int HMAC_Final(HMAC_CTX *ctx, unsigned char *digest, unsigned int *length);
  int CRYPTO_memcmp(const void *one, const void *other, size_t length);
  int RAND_bytes(unsigned char *buffer, int count);
]]
local C = ffi.C

local _M = {}

local CODES = {
  [-1] = { 'LIMIT_REACHED', 409, 'You already have as many coupons of this activity as one shopper may.' },
  [-2] = { 'SOLD_OUT', 409, 'All coupons of this activity are gone.' },
  [-3] = { 'NOT_STARTED', 409, 'This activity has not started yet.' },
  [-4] = { 'ENDED', 410, 'This activity has ended.' },
  [-5] = { 'PAUSED', 409, 'This activity is paused. Please try again later.' },
  [-6] = { 'VOIDED', 410, 'This activity was withdrawn.' },
  [-7] = { 'UNKNOWN_ACTIVITY', 404, 'There is no such activity.' },
  [-8] = { 'NOT_READY', 503, 'Not ready yet. Nothing happened: please try again shortly.' },
}

local settings, script_sha, script_text, hmac
local digest, digest_length = ffi.new('unsigned char[32]'), ffi.new('unsigned int[1]')
local random = ffi.new('unsigned char[16]')

--- Called once in every worker.
function _M.init(options)
  settings = options
  local file = assert(io.open(settings.script, 'rb'))
  script_text = file:read('*a')
  file:close()
  script_sha = settings.script_sha
  hmac = C.HMAC_CTX_new()
  assert(C.HMAC_Init_ex(hmac, settings.secret, #settings.secret, C.EVP_sha256(), nil) == 1)
end

local function problem(code, status, title, members)
  C.RAND_bytes(random, 16)
  local body = members or {}
  body.type = 'urn:problem:' .. code:lower():gsub('_', '-')
  body.title, body.status, body.code = title, status, code
  body.instance = (ffi.string(random, 16):gsub('.', function(byte) return string.format('%02x', byte:byte()) end))
  ngx.status = status
  ngx.header['Content-Type'] = 'application/problem+json'
  local text = cjson.encode(body)
  ngx.header['Content-Length'] = #text
  ngx.print(text)
end

local function shopper()
  local token = ngx.var.http_authorization
  if not token or token:sub(1, 7) ~= 'Bearer ' then
    return nil
  end
  local head, payload, signature = token:match('^Bearer ([%w_-]+)%.([%w_-]+)%.([%w_-]+)$')
  if not head then
    return nil
  end
  local signed = head .. '.' .. payload
  C.HMAC_Init_ex(hmac, nil, 0, nil, nil) -- the same key again
  C.HMAC_Update(hmac, signed, #signed)
  C.HMAC_Final(hmac, digest, digest_length)
  local given = base64.decode_base64url(signature)
  if not given or #given ~= 32 or C.CRYPTO_memcmp(given, digest, 32) ~= 0 then
    return nil
  end
  local header = cjson.decode(base64.decode_base64url(head))
  local claims = cjson.decode(base64.decode_base64url(payload))
  if header.alg ~= 'HS256' or claims.token_type ~= 'access' or not claims.user_id then
    return nil
  end
  if type(claims.exp) ~= 'number' or claims.exp <= ngx.time() then
    return nil
  end
  return tostring(claims.user_id)
end

local function rfc3339(unix_ms)
  local seconds = math.floor(unix_ms / 1000)
  return os.date('!%Y-%m-%dT%H:%M:%S', seconds) .. string.format('.%03dZ', unix_ms - seconds * 1000)
end

local function script_run(id, user_id, seq)
  local connection = redis:new()
  connection:set_timeout(1000)
  local ok, fault = connection:connect(settings.redis_host, settings.redis_port)
  if not ok then
    return nil, fault
  end
  local shard = id:sub(-1)
  local arguments = {
    9,
    'COUPON:SHARD:{' .. shard .. '}',
    'COUPON:ACTIVITY:RULES:{' .. shard .. '}:' .. id,
    'COUPON:RESOURCE:STOCK:{' .. shard .. '}',
    'COUPON:SEIZE:LIST:{' .. shard .. '}:' .. id,
    'QUEUE:COUPON:SEIZE:SYNC:{' .. shard .. '}',
    'COUPON:LISTED:{' .. shard .. '}:' .. id,
    'COUPON:STAFF:{' .. shard .. '}',
    'COUPON:ASKED:{' .. shard .. '}:' .. id .. ':0',
    'COUPON:ASKED:{' .. shard .. '}:' .. id .. ':1',
    id,
    0,
    user_id,
    seq,
    0,
  }
  local reply
  reply, fault = connection:evalsha(script_sha, unpack(arguments))
  if not reply and fault and fault:sub(1, 8) == 'NOSCRIPT' then
    reply, fault = connection:eval(script_text, unpack(arguments))
  end
  if reply then
    connection:set_keepalive(60000, 128)
  end
  return reply, fault
end

--- The request.
function _M.seize()
  local user_id = shopper()
  if not user_id then
    return problem('UNAUTHENTICATED', 401, 'Please log in.')
  end
  ngx.req.read_body()
  local parsed, wanted = pcall(cjson.decode, ngx.req.get_body_data())
  local id, seq = nil, 0
  if parsed and type(wanted) == 'table' then
    id, seq = wanted.id, wanted.seq or 0
    for name in pairs(wanted) do
      if name ~= 'id' and name ~= 'seq' then
        id = nil
      end
    end
  end
  if type(id) ~= 'string' or #id > 19 or not id:find('^[1-9]%d*$') or type(seq) ~= 'number' or seq < 0 or seq % 1 ~= 0 then
    return problem('INVALID_REQUEST', 400, 'The request is not valid.')
  end
  local reply, fault = script_run(id, user_id, seq)
  if not reply then
    ngx.log(ngx.ERR, fault)
    return problem('OUTCOME_UNKNOWN', 503, 'The answer was lost.')
  end
  local entry, now = reply[3], rfc3339(reply[1])
  local claim_url = '/market/consumer/activity/' .. id .. '/claim'
  if #entry < 4 then
    local code, status, title = unpack(CODES[entry[1]])
    local members = { activity_id = id, server_time = now }
    if entry[1] == -1 then
      members.held, members.claim_url = entry[2], claim_url
    end
    return problem(code, status, title, members)
  end
  local body = { code = 'SEIZED', activity_id = id, seq = entry[2], state = 'settled', claim_url = claim_url, server_time = now }
  if entry[3] ~= 0 then
    body.state, body.seized_at = 'pending', rfc3339(entry[3])
  end
  local text = cjson.encode(body)
  ngx.status = entry[4] == 0 and 201 or 200
  ngx.header['Content-Type'] = 'application/json'
  ngx.header['Cache-Control'] = 'no-store'
  ngx.header['Content-Length'] = #text
  ngx.print(text)
end

return _M
