-- Goes into lock.lua where the client does not know which process answers. INFO
-- costs as much as all the rest, so a connection that has asked once gives the
-- server a copy of the script without these lines, which no other process has.
-- Where INFO may not be asked the connection stands for the process, which it
-- cannot outlive.
-- ARGV: … run_id that is known to be mature, never seen before, quarantine in
-- ms, the connection, whether INFO may be asked.
-- who is {run_id, mature, uptime in s or -1}.
local runID, uptime, quarantine = ARGV[12], -1, tonumber(ARGV[11])
if ARGV[13] == '1' then
  local info = redis.pcall('INFO', 'server')
  if type(info) == 'string' then
    runID = string.match(info, 'run_id:(%w+)') or runID
    uptime = tonumber(string.match(info, 'uptime_in_seconds:(%d+)') or -1)
  end
end
local mature = quarantine == 0 or runID == ARGV[9]
  or (ARGV[10] == '1' and uptime >= 0 and (uptime - 1) * 1000 >= quarantine)
grant = grant or mature
who = {runID, mature and 1 or 0, uptime}
