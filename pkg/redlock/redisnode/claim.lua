-- The first take of a token: what lock.lua does with a key that is absent, in
-- the order that is shortest when it is, because the first start of Lua after a
-- pause and each call from it cost more than all that the server does. For a
-- server that is known to be mature, so it is never asked who it is.
--
-- KEYS: the lock; the counter of fencing tokens, or none.
-- ARGV: token, TTL in ms, the time after which the key may not be set, proposed
-- fencing token.
-- The answer is that of lock.lua, which may end after the counter.
-- WHO
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local lock, counter, proposal = KEYS[1], KEYS[2], ARGV[4]
local late = now > tonumber(ARGV[3])
local set = not late and redis.pcall('SET', lock, ARGV[1], 'NX', 'PX', ARGV[2])

if set and set.ok then
  if not counter then return {1, now, 0} end
  -- A counter in front of the proposal is put back below.
  local stored = redis.pcall('SET', counter, proposal, 'GET')
  if not stored then return {1, now, tonumber(proposal)} end
  local unusable = type(stored) == 'table' and stored.err
  if not unusable then
    local number = #stored <= 16 and string.match(stored, '^%d+$') and tonumber(stored) or 9007199254740992
    if number < tonumber(proposal) then return {1, now, tonumber(proposal)} end
    if number < 9006099743113216 then -- 2^53 - 2^40
      redis.call('SET', counter, string.format('%.0f', number + 1))
      return {1, now, number + 1}
    end
    redis.call('SET', counter, stored)
    unusable = number > 9006099743113216 and 'WRONGTYPE not a number from 0 to 2^53-2^40' or 'ERR the counter is used up'
  end
  redis.pcall('DEL', lock) -- where that is forbidden it runs out
  return {0, counter, unusable}
end
if set then return {0, lock, set.err} end

local owner = redis.pcall('GET', lock)
if not owner then return {5, now, 0} end
if type(owner) == 'table' then return {0, lock, owner.err} end
local pttl = redis.pcall('PTTL', lock)
if type(pttl) == 'table' then return {0, lock, pttl.err} end
local stored = counter and redis.pcall('GET', counter)
stored = type(stored) == 'string' and #stored <= 16 and string.match(stored, '^%d+$') and tonumber(stored) or 0
if stored > 9006099743113216 then stored = 0 end
return {3, now, stored, owner, pttl}
