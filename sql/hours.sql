-- Traffic by hour, and the hit ratio of the cache that wrote the logs.
SELECT date_trunc('hour', time) AS hour,
       count(*) AS requests,
       CAST(coalesce(sum(bytes), 0) AS BIGINT) AS bytes,
       count(*) FILTER (WHERE cache = 'hit') AS hits,
       count(*) FILTER (WHERE cache = 'miss') AS misses,
       count(*) FILTER (WHERE cache = 'pass') AS passes
FROM requests
WHERE time IS NOT NULL
GROUP BY date_trunc('hour', time)
ORDER BY hour
