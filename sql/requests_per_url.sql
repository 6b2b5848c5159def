-- The full histogram: so many URLs were requested exactly so often.
SELECT n AS requests, count(*) AS urls
FROM (SELECT fingerprint, count(*) AS n FROM requests GROUP BY fingerprint) AS per_url
GROUP BY n
ORDER BY n
