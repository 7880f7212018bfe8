--[[ Another token for every request. Arguments: method, path, body, token file, width of a token, first record,
  records a thread, and what to do at the end: begin again ("wrap") or stop ("stop"); "anonymous" sends no tokens.
  The last line of the output is JSON. ]]

local threads = 0

function setup(thread)
  thread:set('number', threads)
  threads = threads + 1
end

function init(args)
  local method, path, body = args[1], args[2], args[3]
  width, records, wraps = tonumber(args[5]), tonumber(args[7]), args[8] == 'wrap'
  anonymous = args[8] == 'anonymous' and method .. ' ' .. path .. ' HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n'
  file = assert(io.open(args[4], 'rb'))
  start = (tonumber(args[6]) + number * records) * width
  file:seek('set', start)
  used = 0
  head = method .. ' ' .. path .. ' HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer '
  tail = '\r\n\r\n'
  if body ~= '' then
    tail = '\r\nContent-Type: application/json\r\nContent-Length: ' .. #body .. tail .. body
  end
end

function request()
  if anonymous then
    return anonymous
  end
  if used == records then
    if wraps then
      file:seek('set', start)
      used = 0
    else
      wrk.thread:stop()
      return last
    end
  end
  used = used + 1
  last = head .. file:read(width) .. tail
  return last
end

function done(summary, latency)
  local errors = summary.errors
  io.write(string.format(
    '{"requests":%d,"duration_us":%d,"p50_us":%d,"p99_us":%d,"refused":%d,"broken":%d}\n',
    summary.requests, summary.duration, latency:percentile(50), latency:percentile(99), errors.status,
    errors.connect + errors.read + errors.write + errors.timeout))
end
