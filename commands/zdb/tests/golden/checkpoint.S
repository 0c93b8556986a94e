Simulated DDT histogram:

bucket              allocated                       referenced          
______   ______________________________   ______________________________
refcnt   blocks   LSIZE   PSIZE   DSIZE   blocks   LSIZE   PSIZE   DSIZE
------   ------   -----   -----   -----   ------   -----   -----   -----
     1       35   1.65M    634K    680K       35   1.65M    634K    680K
 Total       35   1.65M    634K    680K       35   1.65M    634K    680K

dedup = 1.00, compress = 2.67, copies = 1.07, dedup * compress / copies = 2.49

