-- The one script of a lock: take, probe, release and announce. It decides all
-- that must be decided in one step, and writes nothing before it knows that it
-- may.
--
-- KEYS: the lock; the counter of fencing tokens, or none.
-- ARGV: operation, token, TTL in ms, whether an absent key may be set, the time
-- after which it may not, proposed fencing token, channel, notice.
-- The answer is {outcome, time, counter, owner, PTTL, who}, where a release has
-- why its notice was refused instead of an owner, or {0, which key, error} when
-- nothing was done. Numbers go to Redis by
-- string.format, as Lua's tostring loses digits above 10^15.
--
-- Each lock pays for every line at each renewal on every node, so there are no
-- functions in here, and what the client can know is not asked.
local lock, counter, op, token = KEYS[1], KEYS[2], ARGV[1], ARGV[2]
local grant, who = ARGV[4] == '1', nil
-- WHO
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]

if op == 'announce' then
  local published = redis.pcall('PUBLISH', ARGV[7], ARGV[8])
  return {7, now, 0, type(published) == 'table' and published.err or '', 0, who}
end

local owner = redis.pcall('GET', lock)
if type(owner) == 'table' then return {0, lock, owner.err} end

if op == 'release' then
  if owner ~= token then return {7, now, 0, '', 0, who} end
  local deleted = redis.pcall('DEL', lock)
  if type(deleted) == 'table' then return {0, lock, deleted.err} end
  -- The notice only hurries others up: that it is forbidden changes nothing.
  local published = ARGV[8] ~= '' and redis.pcall('PUBLISH', ARGV[7], ARGV[8])
  return {6, now, 0, type(published) == 'table' and published.err or '', 0, who}
end

local stored, unusable = 0, nil -- why the counter cannot be used
if counter then
  local value = redis.pcall('GET', counter)
  if type(value) == 'table' then
    unusable = value.err
  elseif value then
    stored = #value <= 16 and string.match(value, '^%d+$') and tonumber(value) or 9007199254740992
    if stored > 9006099743113216 then -- 2^53 - 2^40
      stored, unusable = 0, 'WRONGTYPE not a number from 0 to 2^53-2^40'
    end
  end
end

local proposal = tonumber(ARGV[6])
if op == 'take' and owner == token then
  -- Not SET: this one works when the server is out of memory. Nor may the
  -- counter cost the vote: without it the caller sees the number that is stored.
  local extended = redis.pcall('PEXPIRE', lock, ARGV[3])
  if type(extended) == 'table' then return {0, lock, extended.err} end
  if proposal > stored and counter and not unusable then
    local counted = redis.pcall('SET', counter, string.format('%.0f', proposal))
    if not counted.err then stored = proposal end
  end
  return {2, now, stored, '', 0, who}
end

if owner then
  local pttl = redis.pcall('PTTL', lock)
  if type(pttl) == 'table' then return {0, lock, pttl.err} end
  return {3, now, stored, owner, pttl, who}
end

if op == 'probe' or not grant then return {4, now, stored, '', 0, who} end
local latest = tonumber(ARGV[5])
if latest > 0 and now > latest then return {5, now, stored, '', 0, who} end

if proposal > 0 and counter then
  if stored >= proposal then proposal = stored + 1 end
  if not unusable and proposal > 9006099743113216 then unusable = 'ERR the counter is used up' end
  if unusable then return {0, counter, unusable} end
  local counted = redis.pcall('SET', counter, string.format('%.0f', proposal))
  if counted.err then return {0, counter, counted.err} end
  stored = proposal
end
local set = redis.pcall('SET', lock, token, 'PX', ARGV[3])
if set.err then return {0, lock, set.err} end
return {1, now, stored, '', 0, who}
