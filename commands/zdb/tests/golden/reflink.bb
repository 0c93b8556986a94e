
Traversing all blocks to verify nothing leaked ...


	No leaks (block sum matches space maps exactly)

	bp count:                  1017
	ganged count:                 0
	bp logical:            20290048      avg:  19950
	bp physical:            9691136      avg:   9529     compression:   2.09
	bp allocated:          10354688      avg:  10181     compression:   1.96
	bp deduped:                   0    ref>1:      0   deduplication:   1.00
	bp cloned:               888832    count:      9
	Normal class:           9502720     used: 11.33%
	Embedded log class              0     used:  -nan%

	additional, non-pointer bps of type 0:        774
	Dittoed blocks on same vdev: 105

Blocks	LSIZE	PSIZE	ASIZE	  avg	 comp	%Total	Type
     -	    -	    -	    -	    -	    -	     -	unallocated
     2	  32K	   8K	  24K	  12K	 4.00	  0.24	object directory
     -	    -	    -	    -	    -	    -	     -	object array
     1	  16K	   4K	  12K	  12K	 4.00	  0.12	packed nvlist
     -	    -	    -	    -	    -	    -	     -	packed nvlist size
     -	    -	    -	    -	    -	    -	     -	bpobj
     -	    -	    -	    -	    -	    -	     -	bpobj header
     -	    -	    -	    -	    -	    -	     -	SPA space map header
     6	 768K	  24K	  72K	  12K	32.00	  0.71	SPA space map
     1	   4K	   4K	   4K	   4K	 1.00	  0.04	ZIL intent log
    45	1.91M	 180K	 384K	8.53K	10.84	  3.80	DMU dnode
     3	  12K	  12K	  28K	9.33K	 1.00	  0.28	DMU objset
     -	    -	    -	    -	    -	    -	     -	DSL directory
     -	    -	    -	    -	    -	    -	     -	DSL directory child map
     -	    -	    -	    -	    -	    -	     -	DSL dataset snap map
     -	    -	    -	    -	    -	    -	     -	DSL props
     -	    -	    -	    -	    -	    -	     -	DSL dataset
     -	    -	    -	    -	    -	    -	     -	ZFS znode
     -	    -	    -	    -	    -	    -	     -	ZFS V0 ACL
   880	16.0M	8.92M	9.07M	10.6K	 1.79	 91.85	ZFS plain file
    21	 213K	  29K	  64K	3.05K	 7.34	  0.63	ZFS directory
     2	   1K	   1K	  16K	   8K	 1.00	  0.16	ZFS master node
     -	    -	    -	    -	    -	    -	     -	ZFS delete queue
     -	    -	    -	    -	    -	    -	     -	zvol object
     -	    -	    -	    -	    -	    -	     -	zvol prop
     -	    -	    -	    -	    -	    -	     -	other uint8[]
     -	    -	    -	    -	    -	    -	     -	other uint64[]
     -	    -	    -	    -	    -	    -	     -	other ZAP
     -	    -	    -	    -	    -	    -	     -	persistent error log
     1	 128K	   4K	  12K	  12K	32.00	  0.12	SPA history
     -	    -	    -	    -	    -	    -	     -	SPA history offsets
     -	    -	    -	    -	    -	    -	     -	Pool properties
     -	    -	    -	    -	    -	    -	     -	DSL permissions
     -	    -	    -	    -	    -	    -	     -	ZFS ACL
     -	    -	    -	    -	    -	    -	     -	ZFS SYSACL
     -	    -	    -	    -	    -	    -	     -	FUID table
     -	    -	    -	    -	    -	    -	     -	FUID table size
     -	    -	    -	    -	    -	    -	     -	DSL dataset next clones
     -	    -	    -	    -	    -	    -	     -	scan work queue
     6	   3K	   1K	  16K	2.67K	 3.00	  0.16	ZFS user/group/project used
     -	    -	    -	    -	    -	    -	     -	ZFS user/group/project quota
     -	    -	    -	    -	    -	    -	     -	snapshot refcount tags
     -	    -	    -	    -	    -	    -	     -	DDT ZAP algorithm
     -	    -	    -	    -	    -	    -	     -	DDT statistics
     2	  10K	9.50K	  24K	  12K	 1.05	  0.24	System attributes
     -	    -	    -	    -	    -	    -	     -	SA master node
     2	   3K	   3K	  16K	   8K	 1.00	  0.16	SA attr registration
     4	  64K	  16K	  32K	   8K	 4.00	  0.32	SA attr layouts
     -	    -	    -	    -	    -	    -	     -	scan translations
     -	    -	    -	    -	    -	    -	     -	deduplicated block
     -	    -	    -	    -	    -	    -	     -	DSL deadlist map
     -	    -	    -	    -	    -	    -	     -	DSL deadlist map hdr
     -	    -	    -	    -	    -	    -	     -	DSL dir clones
     -	    -	    -	    -	    -	    -	     -	bpobj subobj
     -	    -	    -	    -	    -	    -	     -	deferred free
     -	    -	    -	    -	    -	    -	     -	dedup ditto
    16	 210K	30.5K	 120K	7.50K	 6.87	  1.19	other
  1017	19.4M	9.24M	9.88M	9.94K	 2.09	100.00	Total
   118	5.88M	 384K	 880K	7.46K	15.70	  8.70	Metadata Total

Block Size Histogram

  block   psize                lsize                asize
   size   Count   Size   Cum.  Count   Size   Cum.  Count   Size   Cum.
    512:     14     7K     7K     14     7K     7K      0      0      0
     1K:     10  11.5K  18.5K     10  11.5K  18.5K      0      0      0
     2K:      2  4.50K    23K      2  4.50K    23K      0      0      0
     4K:    106   426K   448K     14  57.5K  80.5K     28   112K   112K
     8K:     10  97.5K   546K      4  33.5K   114K    110   992K  1.08M
    16K:      9   192K   738K     51   828K   942K     13   280K  1.35M
    32K:     37  1.98M  2.70M      2    76K  1018K     37  1.98M  3.33M
    64K:      7   558K  3.24M      6   486K  1.47M      7   560K  3.88M
   128K:     48     6M  9.24M    140  17.5M  19.0M     48     6M  9.88M
   256K:      0      0  9.24M      0      0  19.0M      0      0  9.88M
   512K:      0      0  9.24M      0      0  19.0M      0      0  9.88M
     1M:      0      0  9.24M      0      0  19.0M      0      0  9.88M
     2M:      0      0  9.24M      0      0  19.0M      0      0  9.88M
     4M:      0      0  9.24M      0      0  19.0M      0      0  9.88M
     8M:      0      0  9.24M      0      0  19.0M      0      0  9.88M
    16M:      0      0  9.24M      0      0  19.0M      0      0  9.88M

