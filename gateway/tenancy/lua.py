"""The three scripts that Redis runs for `RedisLimits`; each is one step that nothing can divide.

All keys of one API key share a hash slot. `window` orders entries by time, `amounts` has their
`tokens:requests`, `sums` what they add up to; `leases` orders holds by their end, `holds` has
their `is_long:micros:month`; `spent` is what the month cost. Times are milliseconds.
"""

_PRELUDE = """
local window, amounts, sums, leases, holds, spent = unpack(KEYS)
local now, span = tonumber(ARGV[1]), tonumber(ARGV[2])
if now < 0 then
  local time = redis.call('TIME')
  now = time[1] * 1000 + math.floor(time[2] / 1000)
end
local function bump(field, by)
  if by ~= 0 then redis.call('HINCRBY', sums, field, by) end
end
local function sum(field)
  return tonumber(redis.call('HGET', sums, field) or '0')
end
local function release(id)
  local held = redis.call('HGET', holds, id)
  if not held then return false end
  local is_long, micros, month = string.match(held, '(%d+):(%d+):(.*)')
  bump('long', -tonumber(is_long))
  bump('micros:' .. month, -tonumber(micros))
  redis.call('HDEL', holds, id)
  redis.call('ZREM', leases, id)
  return true
end
local function enter(id, tokens, requests)
  redis.call('ZADD', window, now, id)
  redis.call('HSET', amounts, id, string.format('%.0f:%.0f', tokens, requests))
  bump('tokens', tokens)
  bump('requests', requests)
end
local function amount(id)
  local tokens, requests = string.match(redis.call('HGET', amounts, id), '(%d+):(%d+)')
  return tonumber(tokens), tonumber(requests)
end
local function prune()
  for _, id in ipairs(redis.call('ZRANGEBYSCORE', window, '-inf', now - span)) do
    local tokens, requests = amount(id)
    bump('tokens', -tokens)
    bump('requests', -requests)
    redis.call('HDEL', amounts, id)
    redis.call('ZREM', window, id)
  end
  for _, id in ipairs(redis.call('ZRANGEBYSCORE', leases, '-inf', now)) do release(id) end
end
local function keep()
  for _, key in ipairs({window, amounts, sums, leases, holds}) do
    redis.call('PEXPIRE', key, 86400000)
  end
  redis.call('PEXPIRE', spent, 6048000000)
end
local function told()
  local newest = redis.call('ZRANGE', window, -1, -1, 'WITHSCORES')
  local reset = 0
  if newest[2] then reset = tonumber(newest[2]) + span - now end
  return {'ok', sum('requests'), sum('tokens'), reset}
end
prune()
"""

CLAIM = (
    _PRELUDE
    + """
local id, month = ARGV[3], ARGV[4]
local requests, tokens, is_long = tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7])
local micros, lease = tonumber(ARGV[8]), tonumber(ARGV[9])
local caps = {tonumber(ARGV[10]), tonumber(ARGV[11]), tonumber(ARGV[12]), tonumber(ARGV[13])}
if redis.call('HEXISTS', amounts, id) == 1 or redis.call('HEXISTS', holds, id) == 1 then
  return told()
end
if caps[4] >= 0 and lease > 0 and redis.call('EXISTS', spent) == 0 then return {'unseeded'} end
local used = {sum('requests'), sum('tokens'), sum('long'),
  tonumber(redis.call('GET', spent) or '0') + sum('micros:' .. month)}
local wanted = {requests, tokens, is_long, micros}
for i = 1, 4 do
  if caps[i] >= 0 and wanted[i] > 0 and used[i] + wanted[i] > caps[i] then
    local wait, excess = -1, used[i] + wanted[i] - caps[i]
    if i <= 2 then
      wait = span
      local entries = redis.call('ZRANGE', window, 0, -1, 'WITHSCORES')
      for e = 1, #entries, 2 do
        local its_tokens, its_requests = amount(entries[e])
        excess = excess - (i == 1 and its_requests or its_tokens)
        if excess <= 0 then
          wait = tonumber(entries[e + 1]) + span - now
          break
        end
      end
    end
    return {'over', i, used[i], wait, now}
  end
end
if requests > 0 or tokens > 0 then enter(id, tokens, requests) end
if lease > 0 then
  redis.call('ZADD', leases, now + lease, id)
  redis.call('HSET', holds, id, string.format('%d:%.0f:%s', is_long, micros, month))
  bump('long', is_long)
  bump('micros:' .. month, micros)
end
keep()
return told()
"""
)

SETTLE = (
    _PRELUDE
    + """
local id, reserved, used = ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[5])
local micros, month_micros = tonumber(ARGV[6]), tonumber(ARGV[7])
if redis.call('HEXISTS', amounts, id) == 1 then
  local tokens, requests = amount(id)
  bump('tokens', used - tokens)
  redis.call('HSET', amounts, id, string.format('%.0f:%.0f', used, requests))
elseif used > reserved and redis.call('HEXISTS', amounts, id .. '+') == 0 then
  enter(id .. '+', used - reserved, 0)
end
local total = redis.call('GET', spent)
local fresh = release(id) and micros or 0
if total or month_micros > 0 then
  total = math.max(tonumber(total or '0') + fresh, month_micros)
  redis.call('SET', spent, string.format('%.0f', total))
end
keep()
return told()
"""
)

RENEW = (
    _PRELUDE
    + """
for i = 4, #ARGV do
  redis.call('ZADD', leases, 'XX', now + tonumber(ARGV[3]), ARGV[i])
end
return {'ok'}
"""
)
