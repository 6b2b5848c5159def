-- Requests, bytes and the logged cache's hits by method.
SELECT CAST(method AS VARCHAR(300)) AS name,
       count(*) AS requests,
       CAST(coalesce(sum(bytes), 0) AS BIGINT) AS bytes,
       count(*) FILTER (WHERE cache = 'hit') AS hits,
       count(*) FILTER (WHERE cache = 'miss') AS misses
FROM requests
WHERE method IS NOT NULL
GROUP BY method
ORDER BY requests DESC, name
