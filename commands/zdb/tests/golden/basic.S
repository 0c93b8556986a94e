Simulated DDT histogram:

bucket              allocated                       referenced          
______   ______________________________   ______________________________
refcnt   blocks   LSIZE   PSIZE   DSIZE   blocks   LSIZE   PSIZE   DSIZE
------   ------   -----   -----   -----   ------   -----   -----   -----
     1    2.45K   34.4M   18.7M   24.7M    2.45K   34.4M   18.7M   24.7M
     2       27    683K    487K    536K       62   1.34M    978K   1.08M
     4       25    622K    374K    420K      144   3.02M   2.05M   2.32M
 Total    2.50K   35.7M   19.5M   25.6M    2.65K   38.8M   21.7M   28.1M

dedup = 1.10, compress = 1.79, copies = 1.30, dedup * compress / copies = 1.52

