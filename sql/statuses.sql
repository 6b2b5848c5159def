-- Requests, bytes and the logged cache's hits by status.
SELECT CAST(status AS VARCHAR(300)) AS name,
       count(*) AS requests,
       CAST(coalesce(sum(bytes), 0) AS BIGINT) AS bytes,
       count(*) FILTER (WHERE cache = 'hit') AS hits,
       count(*) FILTER (WHERE cache = 'miss') AS misses
FROM requests
WHERE status IS NOT NULL
GROUP BY status
ORDER BY requests DESC, name
