-- The requests of wrk for a cache on disk: wrk … -s load.lua URL -- SIZE KEYS SEED
--
-- Requests random objects out of KEYS, each of SIZE bytes. The requests are built in advance, so that the client needs
-- only one table access per request.

local requests, keys

function init(args)
    local size, seed = args[1], args[3]
    keys = tonumber(args[2])
    requests = {}
    for key = 1, keys do
        requests[key] = "GET /o/" .. key .. "?size=" .. size .. " HTTP/1.1\r\nHost: bench\r\n\r\n"
    end
    math.randomseed(tonumber(seed))
    request = function() return requests[math.random(keys)] end
end

-- Prints one line for the benchmark. Times are in microseconds.
function done(summary, latency)
    local errors = summary.errors
    io.write(string.format(
        'result {"requests":%d,"duration_us":%d,"bytes":%d,'
        .. '"errors":{"connect":%d,"read":%d,"write":%d,"status":%d,"timeout":%d},'
        .. '"latency_us":{"p50":%d,"p90":%d,"p99":%d,"p999":%d,"max":%d}}\n',
        summary.requests, summary.duration, summary.bytes,
        errors.connect, errors.read, errors.write, errors.status, errors.timeout,
        latency:percentile(50), latency:percentile(90), latency:percentile(99),
        latency:percentile(99.9), latency.max))
end
