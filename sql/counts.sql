-- Requests, URLs, and URLs requested once.
SELECT CAST(sum(n) AS BIGINT) AS requests,
       count(*) AS urls,
       count(*) FILTER (WHERE n = 1) AS once
FROM (SELECT fingerprint, count(*) AS n FROM requests GROUP BY fingerprint) AS per_url
