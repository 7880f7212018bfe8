--[[ Remove claims that the ledger now has, each only if its value is unchanged.

  KEYS     [1] queue hash
  ARGV     per claim: field, value
  RETURNS  number of claims removed ]]

local removed = 0
for i = 1, #ARGV, 2 do
  if redis.call('HGET', KEYS[1], ARGV[i]) == ARGV[i + 1] then
    removed = removed + redis.call('HDEL', KEYS[1], ARGV[i])
  end
end
return removed
