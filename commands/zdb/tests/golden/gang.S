Simulated DDT histogram:

bucket              allocated                       referenced          
______   ______________________________   ______________________________
refcnt   blocks   LSIZE   PSIZE   DSIZE   blocks   LSIZE   PSIZE   DSIZE
------   ------   -----   -----   -----   ------   -----   -----   -----
     1      825   17.8M   17.0M   17.7M      825   17.8M   17.0M   17.7M
 Total      825   17.8M   17.0M   17.7M      825   17.8M   17.0M   17.7M

dedup = 1.00, compress = 1.05, copies = 1.04, dedup * compress / copies = 1.01

