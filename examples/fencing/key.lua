-- Writes a hash whose field "token" is the token of its last write.
--   KEYS[1]  the hash          ARGV[1]  the writer's token          ARGV[2]  the value
-- Returns 1 when it was written, 0 when the token is too old. For one write per term
-- compare with >= instead of >. Tokens are below 2^53, which Lua's numbers keep exact;
-- they are stored as they came, because Lua prints numbers above 10^14 with an exponent.
local last = redis.call('HGET', KEYS[1], 'token')
if last and tonumber(last) > tonumber(ARGV[1]) then
  return 0
end
redis.call('HSET', KEYS[1], 'token', ARGV[1], 'value', ARGV[2])
return 1
