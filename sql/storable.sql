-- Objects with a complete response, their bytes, and the part that was requested once. With second-hit
-- admission a disk cache does not write this part.
SELECT count(*) AS objects,
       CAST(coalesce(sum(size), 0) AS BIGINT) AS bytes,
       count(*) FILTER (WHERE n = 1) AS once,
       CAST(coalesce(sum(size) FILTER (WHERE n = 1), 0) AS BIGINT) AS once_bytes
FROM (SELECT count(*) AS n,
             max(coalesce(bytes, 0)) FILTER (WHERE status = 200 AND method = 'GET') AS size
      FROM requests
      GROUP BY fingerprint) AS per_url
WHERE size IS NOT NULL
