
Traversing all blocks to verify nothing leaked ...


	No leaks (block sum matches space maps exactly)

	bp count:                  7267
	ganged count:                 0
	bp logical:            88706048      avg:  12206
	bp physical:           26629632      avg:   3664     compression:   3.33
	bp allocated:          38211584      avg:   5258     compression:   2.32
	bp deduped:                   0    ref>1:      0   deduplication:   1.00
	bp cloned:                    0    count:      0
	Normal class:          38297600     used: 20.75%
	Embedded log class              0     used:  -nan%

	additional, non-pointer bps of type 0:       3604
	Dittoed blocks on same vdev: 952

Blocks	LSIZE	PSIZE	ASIZE	  avg	 comp	%Total	Type
     -	    -	    -	    -	    -	    -	     -	unallocated
     2	  32K	   8K	  24K	  12K	 4.00	  0.06	object directory
     -	    -	    -	    -	    -	    -	     -	object array
     1	  16K	   4K	  12K	  12K	 4.00	  0.03	packed nvlist
     -	    -	    -	    -	    -	    -	     -	packed nvlist size
     5	 640K	  20K	  60K	  12K	32.00	  0.16	bpobj
     -	    -	    -	    -	    -	    -	     -	bpobj header
     -	    -	    -	    -	    -	    -	     -	SPA space map header
    12	1.50M	  48K	 144K	  12K	32.00	  0.39	SPA space map
     1	 128K	 128K	 128K	 128K	 1.00	  0.34	ZIL intent log
   529	22.0M	2.07M	4.21M	8.14K	10.67	 11.54	DMU dnode
    26	 104K	 104K	 216K	8.31K	 1.00	  0.58	DMU objset
     -	    -	    -	    -	    -	    -	     -	DSL directory
    26	14.5K	   2K	  12K	  472	 7.25	  0.03	DSL directory child map
     -	    -	    -	    -	    -	    -	     -	DSL dataset snap map
    27	44.5K	   8K	  24K	  910	 5.56	  0.06	DSL props
     -	    -	    -	    -	    -	    -	     -	DSL dataset
     -	    -	    -	    -	    -	    -	     -	ZFS znode
     -	    -	    -	    -	    -	    -	     -	ZFS V0 ACL
 5.58K	53.2M	20.9M	27.8M	4.98K	 2.55	 76.15	ZFS plain file
   378	3.54M	 442K	1008K	2.67K	 8.21	  2.70	ZFS directory
    22	11.5K	11.5K	 176K	   8K	 1.00	  0.47	ZFS master node
     -	    -	    -	    -	    -	    -	     -	ZFS delete queue
   233	1.94M	1.26M	1.27M	5.56K	 1.54	  3.47	zvol object
     -	    -	    -	    -	    -	    -	     -	zvol prop
     -	    -	    -	    -	    -	    -	     -	other uint8[]
     -	    -	    -	    -	    -	    -	     -	other uint64[]
     -	    -	    -	    -	    -	    -	     -	other ZAP
     -	    -	    -	    -	    -	    -	     -	persistent error log
     1	 128K	   8K	  24K	  24K	16.00	  0.06	SPA history
     -	    -	    -	    -	    -	    -	     -	SPA history offsets
     -	    -	    -	    -	    -	    -	     -	Pool properties
     -	    -	    -	    -	    -	    -	     -	DSL permissions
     -	    -	    -	    -	    -	    -	     -	ZFS ACL
     -	    -	    -	    -	    -	    -	     -	ZFS SYSACL
     -	    -	    -	    -	    -	    -	     -	FUID table
     -	    -	    -	    -	    -	    -	     -	FUID table size
     2	   2K	1.50K	  12K	   6K	 1.33	  0.03	DSL dataset next clones
     -	    -	    -	    -	    -	    -	     -	scan work queue
    69	34.5K	  19K	 304K	4.41K	 1.82	  0.81	ZFS user/group/project used
     -	    -	    -	    -	    -	    -	     -	ZFS user/group/project quota
     -	    -	    -	    -	    -	    -	     -	snapshot refcount tags
     -	    -	    -	    -	    -	    -	     -	DDT ZAP algorithm
     -	    -	    -	    -	    -	    -	     -	DDT statistics
    17	 162K	 162K	 408K	  24K	 1.00	  1.09	System attributes
     -	    -	    -	    -	    -	    -	     -	SA master node
    21	31.5K	31.5K	 168K	   8K	 1.00	  0.45	SA attr registration
    42	 672K	 168K	 336K	   8K	 4.00	  0.90	SA attr layouts
     -	    -	    -	    -	    -	    -	     -	scan translations
     -	    -	    -	    -	    -	    -	     -	deduplicated block
     -	    -	    -	    -	    -	    -	     -	DSL deadlist map
     -	    -	    -	    -	    -	    -	     -	DSL deadlist map hdr
     2	   2K	1.50K	  12K	   6K	 1.33	  0.03	DSL dir clones
     -	    -	    -	    -	    -	    -	     -	bpobj subobj
     -	    -	    -	    -	    -	    -	     -	deferred free
     -	    -	    -	    -	    -	    -	     -	dedup ditto
    41	 374K	45.5K	 228K	5.56K	 8.21	  0.61	other
 7.10K	84.6M	25.4M	36.4M	5.13K	 3.33	100.00	Total
 1.26K	43.1M	3.68M	8.16M	6.45K	11.70	 22.38	Metadata Total

Block Size Histogram

  block   psize                lsize                asize
   size   Count   Size   Cum.  Count   Size   Cum.  Count   Size   Cum.
    512:  1.78K   910K   910K  1.78K   910K   910K      0      0      0
     1K:    117   130K  1.02M    117   130K  1.02M      0      0      0
     2K:      3  6.50K  1.02M      3  6.50K  1.02M      0      0      0
     4K:  1.16K  4.66M  5.68M    365  1.47M  2.49M  2.12K  8.48M  8.48M
     8K:    267  2.19M  7.87M    230  1.82M  4.31M  1.14K  9.45M  17.9M
    16K:     86  1.71M  9.59M    564  8.95M  13.3M    136  2.68M  20.6M
    32K:     74  3.69M  13.3M      3   132K  13.4M     74  3.69M  24.3M
    64K:     45  3.50M  16.8M     75  5.89M  19.3M     45  3.53M  27.8M
   128K:     69  8.62M  25.4M    484  60.5M  79.8M     69  8.62M  36.4M
   256K:      0      0  25.4M      1   268K  80.0M      0      0  36.4M
   512K:      0      0  25.4M      0      0  80.0M      0      0  36.4M
     1M:      0      0  25.4M      2     2M  82.0M      0      0  36.4M
     2M:      0      0  25.4M      0      0  82.0M      0      0  36.4M
     4M:      0      0  25.4M      0      0  82.0M      0      0  36.4M
     8M:      0      0  25.4M      0      0  82.0M      0      0  36.4M
    16M:      0      0  25.4M      0      0  82.0M      0      0  36.4M

