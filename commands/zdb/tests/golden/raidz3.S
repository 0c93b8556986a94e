Simulated DDT histogram:

bucket              allocated                       referenced          
______   ______________________________   ______________________________
refcnt   blocks   LSIZE   PSIZE   DSIZE   blocks   LSIZE   PSIZE   DSIZE
------   ------   -----   -----   -----   ------   -----   -----   -----
     1      917   28.3M   24.1M   29.5M      917   28.3M   24.1M   29.5M
 Total      917   28.3M   24.1M   29.5M      917   28.3M   24.1M   29.5M

dedup = 1.00, compress = 1.17, copies = 1.22, dedup * compress / copies = 0.96

