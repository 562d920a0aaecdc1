-- The one script of a lock: take, probe, release and announce. It decides all
-- that must be decided in one step, and writes nothing before it knows that it
-- may.
--
-- KEYS: the lock; the counter of fencing tokens, or none.
-- The answer is {outcome, owner, pttl, run_id, young, uptime, time, fence}, or
-- {0, which key, error} when nothing was done. Numbers go to Redis by
-- string.format, as Lua's tostring loses digits above 10^15.
local lock, counter = KEYS[1], KEYS[2]
local op, token, ttl, matureID, unseen, quarantine, haveVote, notAfter,
  proposal, connID, askInfo, channel, notice = unpack(ARGV)
local TAKEN, EXTENDED, HELD, ABSENT, LATE, RELEASED, GONE = 1, 2, 3, 4, 5, 6, 7
local LIMIT = 9007199254740992 - 1099511627776 -- 2^53 - 2^40
quarantine, notAfter, proposal = tonumber(quarantine), tonumber(notAfter), tonumber(proposal)

local function failure(reply)
  return type(reply) == 'table' and reply.err
end

-- Which process answers, and for how long it has been up. Where INFO may not be
-- asked the connection stands for the process, which it cannot outlive. INFO costs
-- as much as all the rest, so a connection that has asked once gives the server a
-- copy of this script that says its run_id: no other process has that copy.
local runID, uptime = 'RUN_ID', -1
if runID == '' then runID = connID end
if askInfo == '1' then
  local info = redis.pcall('INFO', 'server')
  if type(info) == 'string' then
    runID = string.match(info, 'run_id:(%w+)') or connID
    uptime = tonumber(string.match(info, 'uptime_in_seconds:(%d+)') or -1)
  end
end
local mature = quarantine == 0 or runID == matureID
  or (unseen == '1' and uptime >= 0 and (uptime - 1) * 1000 >= quarantine)

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]

local stored, counterError = 0, false
if counter then
  local value = redis.pcall('GET', counter)
  if failure(value) then
    counterError = value.err
  elseif value then
    stored = #value <= 16 and string.match(value, '^%d+$') and tonumber(value) or LIMIT + 1
    if stored > LIMIT then
      stored, counterError = 0, 'WRONGTYPE not a number from 0 to 2^53-2^40'
    end
  end
end

local function answer(outcome, owner, pttl)
  return {outcome, owner or '', pttl or 0, runID, mature and 0 or 1, uptime, now, stored}
end

local function count(n)
  local err = failure(redis.pcall('SET', counter, string.format('%.0f', n)))
  if not err then stored = n end
  return err
end

if op == 'announce' then
  redis.pcall('PUBLISH', channel, notice)
  return answer(GONE)
end

local owner = redis.pcall('GET', lock)
if failure(owner) then return {0, lock, owner.err} end

if op == 'release' then
  if owner ~= token then return answer(GONE) end
  local err = failure(redis.pcall('DEL', lock))
  if err then return {0, lock, err} end
  -- The notice only hurries others up: that it is forbidden changes nothing.
  if notice ~= '' then redis.pcall('PUBLISH', channel, notice) end
  return answer(RELEASED)
end

if op == 'take' and owner == token then
  -- Not SET: this one works when the server is out of memory. Nor may the
  -- counter cost the vote: without it the caller sees the number that is stored.
  local err = failure(redis.pcall('PEXPIRE', lock, ttl))
  if err then return {0, lock, err} end
  if proposal > stored and counter and not counterError then count(proposal) end
  return answer(EXTENDED)
end

if owner then
  local pttl = redis.pcall('PTTL', lock)
  if failure(pttl) then return {0, lock, pttl.err} end
  return answer(HELD, owner, pttl)
end

if op == 'probe' or not (mature or haveVote == '1') then return answer(ABSENT) end
if notAfter > 0 and now > notAfter then return answer(LATE) end

if proposal > 0 and counter then
  local err = counterError
  local n = math.max(stored + 1, proposal)
  if not err and n > LIMIT then err = 'ERR the counter is used up' end
  err = err or count(n)
  if err then return {0, counter, err} end
end
local err = failure(redis.pcall('SET', lock, token, 'PX', ttl))
if err then return {0, lock, err} end
return answer(TAKEN)
