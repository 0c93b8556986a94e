Simulated DDT histogram:

bucket              allocated                       referenced          
______   ______________________________   ______________________________
refcnt   blocks   LSIZE   PSIZE   DSIZE   blocks   LSIZE   PSIZE   DSIZE
------   ------   -----   -----   -----   ------   -----   -----   -----
     1      924   13.5M   8.53M   8.53M      924   13.5M   8.53M   8.53M
     2        5    153K     40K     40K       10    306K     80K     80K
 Total      929   13.7M   8.56M   8.56M      934   13.8M   8.60M   8.60M

dedup = 1.00, compress = 1.61, copies = 1.00, dedup * compress / copies = 1.61

