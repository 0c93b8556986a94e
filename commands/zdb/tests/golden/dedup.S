Simulated DDT histogram:

bucket              allocated                       referenced          
______   ______________________________   ______________________________
refcnt   blocks   LSIZE   PSIZE   DSIZE   blocks   LSIZE   PSIZE   DSIZE
------   ------   -----   -----   -----   ------   -----   -----   -----
     2       34   1.31M    570K    616K       68   2.62M   1.11M   1.20M
 Total       34   1.31M    570K    616K       68   2.62M   1.11M   1.20M

dedup = 2.00, compress = 2.35, copies = 1.08, dedup * compress / copies = 4.35

