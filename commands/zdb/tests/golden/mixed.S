Simulated DDT histogram:

bucket              allocated                       referenced          
______   ______________________________   ______________________________
refcnt   blocks   LSIZE   PSIZE   DSIZE   blocks   LSIZE   PSIZE   DSIZE
------   ------   -----   -----   -----   ------   -----   -----   -----
     1      128   11.8M   7.99M   8.05M      128   11.8M   7.99M   8.05M
 Total      128   11.8M   7.99M   8.05M      128   11.8M   7.99M   8.05M

dedup = 1.00, compress = 1.47, copies = 1.01, dedup * compress / copies = 1.46

