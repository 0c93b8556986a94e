
Traversing all blocks to verify nothing leaked ...


	No leaks (block sum matches space maps exactly)

	bp count:                  1150
	ganged count:                54
	bp logical:            23996416      avg:  20866
	bp physical:           18054656      avg:  15699     compression:   1.33
	bp allocated:          18992128      avg:  16514     compression:   1.26
	bp deduped:                   0    ref>1:      0   deduplication:   1.00
	bp cloned:                    0    count:      0
	Normal class:          18998272     used: 22.65%
	Embedded log class              0     used:  -nan%

	additional, non-pointer bps of type 0:        212
	Dittoed blocks on same vdev: 168

Blocks	LSIZE	PSIZE	ASIZE	  avg	 comp	%Total	Type
     -	    -	    -	    -	    -	    -	     -	unallocated
     2	  32K	4.50K	13.5K	6.75K	 7.11	  0.07	object directory
     -	    -	    -	    -	    -	    -	     -	object array
     1	  16K	   1K	   3K	   3K	16.00	  0.02	packed nvlist
     -	    -	    -	    -	    -	    -	     -	packed nvlist size
     -	    -	    -	    -	    -	    -	     -	bpobj
     -	    -	    -	    -	    -	    -	     -	bpobj header
     -	    -	    -	    -	    -	    -	     -	SPA space map header
     6	 768K	   8K	  24K	   4K	96.00	  0.13	SPA space map
     1	  12K	  12K	  12K	  12K	 1.00	  0.06	ZIL intent log
    56	2.62M	  79K	 180K	3.22K	34.03	  0.97	DMU dnode
     4	  16K	   2K	   5K	1.25K	 8.00	  0.03	DMU objset
     -	    -	    -	    -	    -	    -	     -	DSL directory
     -	    -	    -	    -	    -	    -	     -	DSL directory child map
     -	    -	    -	    -	    -	    -	     -	DSL dataset snap map
     -	    -	    -	    -	    -	    -	     -	DSL props
     -	    -	    -	    -	    -	    -	     -	DSL dataset
     -	    -	    -	    -	    -	    -	     -	ZFS znode
     -	    -	    -	    -	    -	    -	     -	ZFS V0 ACL
   968	18.6M	17.0M	17.7M	18.7K	 1.09	 97.67	ZFS plain file
    41	 390K	28.5K	  66K	1.61K	13.67	  0.36	ZFS directory
     3	1.50K	1.50K	   3K	   1K	 1.00	  0.02	ZFS master node
     -	    -	    -	    -	    -	    -	     -	ZFS delete queue
     -	    -	    -	    -	    -	    -	     -	zvol object
     -	    -	    -	    -	    -	    -	     -	zvol prop
     -	    -	    -	    -	    -	    -	     -	other uint8[]
     -	    -	    -	    -	    -	    -	     -	other uint64[]
     -	    -	    -	    -	    -	    -	     -	other ZAP
     -	    -	    -	    -	    -	    -	     -	persistent error log
     1	 128K	2.50K	7.50K	7.50K	51.20	  0.04	SPA history
     -	    -	    -	    -	    -	    -	     -	SPA history offsets
     -	    -	    -	    -	    -	    -	     -	Pool properties
     -	    -	    -	    -	    -	    -	     -	DSL permissions
     -	    -	    -	    -	    -	    -	     -	ZFS ACL
     -	    -	    -	    -	    -	    -	     -	ZFS SYSACL
     -	    -	    -	    -	    -	    -	     -	FUID table
     -	    -	    -	    -	    -	    -	     -	FUID table size
     -	    -	    -	    -	    -	    -	     -	DSL dataset next clones
     -	    -	    -	    -	    -	    -	     -	scan work queue
     9	4.50K	   2K	   5K	  568	 2.25	  0.03	ZFS user/group/project used
     -	    -	    -	    -	    -	    -	     -	ZFS user/group/project quota
     -	    -	    -	    -	    -	    -	     -	snapshot refcount tags
     -	    -	    -	    -	    -	    -	     -	DDT ZAP algorithm
     -	    -	    -	    -	    -	    -	     -	DDT statistics
     4	  20K	  19K	47.5K	11.9K	 1.05	  0.26	System attributes
     -	    -	    -	    -	    -	    -	     -	SA master node
     3	4.50K	1.50K	   3K	   1K	 3.00	  0.02	SA attr registration
     6	  96K	  12K	  28K	4.67K	 8.00	  0.15	SA attr layouts
     -	    -	    -	    -	    -	    -	     -	scan translations
     -	    -	    -	    -	    -	    -	     -	deduplicated block
     -	    -	    -	    -	    -	    -	     -	DSL deadlist map
     -	    -	    -	    -	    -	    -	     -	DSL deadlist map hdr
     -	    -	    -	    -	    -	    -	     -	DSL dir clones
     -	    -	    -	    -	    -	    -	     -	bpobj subobj
     -	    -	    -	    -	    -	    -	     -	deferred free
     -	    -	    -	    -	    -	    -	     -	dedup ditto
    14	 170K	11.5K	34.5K	2.46K	14.78	  0.19	other
 1.12K	22.9M	17.2M	18.1M	16.1K	 1.33	100.00	Total
   143	4.83M	 180K	 412K	2.88K	27.54	  2.22	Metadata Total

Block Size Histogram

  block   psize                lsize                asize
   size   Count   Size   Cum.  Count   Size   Cum.  Count   Size   Cum.
    512:    768   384K   384K    747   374K   374K    731   366K   366K
     1K:     73  87.5K   472K     16    18K   392K     43    49K   414K
     2K:     19  48.5K   520K      2  4.50K   396K     59   158K   572K
     4K:     17  77.5K   598K     19  78.5K   474K     34   166K   739K
     8K:      9  83.5K   681K      9    79K   554K     13   132K   871K
    16K:     11   207K   888K     65  1.04M  1.58M     12   232K  1.08M
    32K:      2    99K   987K      1    44K  1.62M      5   200K  1.27M
    64K:      8   648K  1.60M     10   810K  2.41M      8   694K  1.95M
   128K:     10  1.25M  2.85M     48  6.00M  8.41M     11  1.46M  3.41M
   256K:      7  1.87M  4.72M      7  1.87M  10.3M      8  2.14M  5.55M
   512K:      3  1.50M  6.22M      3  1.50M  11.8M      3  1.51M  7.06M
     1M:     11    11M  17.2M     11    11M  22.8M     11  11.1M  18.1M
     2M:      0      0  17.2M      0      0  22.8M      0      0  18.1M
     4M:      0      0  17.2M      0      0  22.8M      0      0  18.1M
     8M:      0      0  17.2M      0      0  22.8M      0      0  18.1M
    16M:      0      0  17.2M      0      0  22.8M      0      0  18.1M

