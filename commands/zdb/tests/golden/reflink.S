Simulated DDT histogram:

bucket              allocated                       referenced          
______   ______________________________   ______________________________
refcnt   blocks   LSIZE   PSIZE   DSIZE   blocks   LSIZE   PSIZE   DSIZE
------   ------   -----   -----   -----   ------   -----   -----   -----
     1      119   10.7M   7.14M   7.20M      119   10.7M   7.14M   7.20M
     2        9   1.12M    868K    868K       18   2.25M   1.70M   1.70M
 Total      128   11.8M   7.99M   8.05M      137   12.9M   8.84M   8.90M

dedup = 1.11, compress = 1.46, copies = 1.01, dedup * compress / copies = 1.60

