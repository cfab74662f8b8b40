; 1: row
define internal void @body(i64 %n1, ptr noalias %p0, ptr noalias %p1, ptr noalias %p2, ptr noalias %p3, i64 %s0_1, i64 %s1_1, i64 %s2_1, i64 %s3_1, i64 %c0, i64 %c1, i64 %c2, i64 %c3, i64 %c4) nounwind noinline {
entry:
  %s1 = alloca float, i64 1
  %s2 = alloca float, i64 1
  %s21 = alloca float, i64 1
  %s22 = alloca float, i64 1
  %s28 = alloca float, i64 1
  %s29 = alloca float, i64 1
  %s63 = alloca float, i64 1
  %s64 = alloca float, i64 1
  %s79 = alloca float, i64 1
  %s80 = alloca float, i64 1
  store float 0x8000000000000000, ptr %s1
  store float 0x8000000000000000, ptr %s2
  %v4 = icmp slt i64 0, %n1
  br i1 %v4, label %body3, label %done3
body3:
  %i3 = phi i64 [ 0, %entry ], [ %v18, %done7 ]
  store float 0x8000000000000000, ptr %s2
  %v5 = add nsw i64 %i3, 256
  %v6 = call i64 @llvm.smin.i64(i64 %v5, i64 %n1)
  %v8 = icmp slt i64 %i3, %v6
  br i1 %v8, label %body7, label %done7
body7:
  %i7 = phi i64 [ %i3, %body3 ], [ %v13, %body7 ]
  %v9 = getelementptr inbounds float, ptr %p0, i64 %i7
  %v10 = load float, ptr %v9, align 4
  %v11 = load float, ptr %s2
  %v12 = fadd reassoc float %v11, %v10
  store float %v12, ptr %s2
  %v13 = add nuw nsw i64 %i7, 1
  %v14 = icmp slt i64 %v13, %v6
  br i1 %v14, label %body7, label %done7, !llvm.loop !0
done7:
  %v15 = load float, ptr %s1
  %v16 = load float, ptr %s2
  %v17 = fadd float %v15, %v16
  store float %v17, ptr %s1
  %v18 = add nuw nsw i64 %i3, 256
  %v19 = icmp slt i64 %v18, %n1
  br i1 %v19, label %body3, label %done3
done3:
  %v20 = load float, ptr %s1
  store float 0x8000000000000000, ptr %s21
  store float 0x8000000000000000, ptr %s22
  %v23 = trunc i64 %c0 to i32
  %v24 = bitcast i32 %v23 to float
  %v25 = fdiv float %v20, %v24
  %v26 = trunc i64 %c4 to i32
  %v27 = bitcast i32 %v26 to float
  store float 0x8000000000000000, ptr %s28
  store float 0x8000000000000000, ptr %s29
  %v31 = icmp slt i64 0, %n1
  br i1 %v31, label %body30, label %done30
body30:
  %i30 = phi i64 [ 0, %done3 ], [ %v59, %done34 ]
  store float 0x8000000000000000, ptr %s28
  store float 0x8000000000000000, ptr %s29
  %v32 = add nsw i64 %i30, 256
  %v33 = call i64 @llvm.smin.i64(i64 %v32, i64 %n1)
  %v35 = icmp slt i64 %i30, %v33
  br i1 %v35, label %body34, label %done34
body34:
  %i34 = phi i64 [ %i30, %body30 ], [ %v51, %body34 ]
  %v36 = getelementptr inbounds float, ptr %p0, i64 %i34
  %v37 = load float, ptr %v36, align 4
  %v38 = fsub float %v37, %v25
  %v39 = fmul float %v38, %v38
  %v40 = getelementptr inbounds float, ptr %p1, i64 %i34
  %v41 = load float, ptr %v40, align 4
  %v42 = fmul float %v27, %v41
  %v43 = getelementptr inbounds float, ptr %p2, i64 %i34
  %v44 = load float, ptr %v43, align 4
  %v45 = fmul float %v42, %v44
  %v46 = fmul float %v45, %v38
  %v47 = load float, ptr %s28
  %v48 = fadd reassoc float %v47, %v39
  store float %v48, ptr %s28
  %v49 = load float, ptr %s29
  %v50 = fadd reassoc float %v49, %v46
  store float %v50, ptr %s29
  %v51 = add nuw nsw i64 %i34, 1
  %v52 = icmp slt i64 %v51, %v33
  br i1 %v52, label %body34, label %done34, !llvm.loop !3
done34:
  %v53 = load float, ptr %s21
  %v54 = load float, ptr %s28
  %v55 = fadd float %v53, %v54
  store float %v55, ptr %s21
  %v56 = load float, ptr %s22
  %v57 = load float, ptr %s29
  %v58 = fadd float %v56, %v57
  store float %v58, ptr %s22
  %v59 = add nuw nsw i64 %i30, 256
  %v60 = icmp slt i64 %v59, %n1
  br i1 %v60, label %body30, label %done30
done30:
  %v61 = load float, ptr %s21
  %v62 = load float, ptr %s22
  store float 0x8000000000000000, ptr %s63
  store float 0x8000000000000000, ptr %s64
  %v65 = trunc i64 %c1 to i32
  %v66 = bitcast i32 %v65 to float
  %v67 = fdiv float %v61, %v24
  %v68 = trunc i64 %c2 to i32
  %v69 = bitcast i32 %v68 to float
  %v70 = fadd float %v67, %v69
  %v71 = call float @llvm.sqrt.f32(float %v70)
  %v72 = fdiv float 0x3FF0000000000000, %v71
  %v73 = fdiv float %v72, %v70
  %v74 = trunc i64 %c3 to i32
  %v75 = bitcast i32 %v74 to float
  %v76 = fmul float %v75, %v73
  %v77 = fmul float %v62, %v76
  %v78 = fdiv float %v77, %v24
  store float 0x8000000000000000, ptr %s79
  store float 0x8000000000000000, ptr %s80
  %v82 = icmp slt i64 0, %n1
  br i1 %v82, label %body81, label %done81
body81:
  %i81 = phi i64 [ 0, %done30 ], [ %v113, %done85 ]
  store float 0x8000000000000000, ptr %s79
  store float 0x8000000000000000, ptr %s80
  %v83 = add nsw i64 %i81, 256
  %v84 = call i64 @llvm.smin.i64(i64 %v83, i64 %n1)
  %v86 = icmp slt i64 %i81, %v84
  br i1 %v86, label %body85, label %done85
body85:
  %i85 = phi i64 [ %i81, %body81 ], [ %v105, %body85 ]
  %v87 = getelementptr inbounds float, ptr %p0, i64 %i85
  %v88 = load float, ptr %v87, align 4
  %v89 = fsub float %v88, %v25
  %v90 = fmul float %v66, %v89
  %v91 = getelementptr inbounds float, ptr %p1, i64 %i85
  %v92 = load float, ptr %v91, align 4
  %v93 = fmul float %v27, %v92
  %v94 = getelementptr inbounds float, ptr %p2, i64 %i85
  %v95 = load float, ptr %v94, align 4
  %v96 = fmul float %v93, %v95
  %v97 = fmul float %v96, %v72
  %v98 = fneg float %v97
  %v99 = fmul float %v78, %v90
  %v100 = fneg float %v99
  %v101 = load float, ptr %s79
  %v102 = fadd reassoc float %v101, %v98
  store float %v102, ptr %s79
  %v103 = load float, ptr %s80
  %v104 = fadd reassoc float %v103, %v100
  store float %v104, ptr %s80
  %v105 = add nuw nsw i64 %i85, 1
  %v106 = icmp slt i64 %v105, %v84
  br i1 %v106, label %body85, label %done85, !llvm.loop !6
done85:
  %v107 = load float, ptr %s63
  %v108 = load float, ptr %s79
  %v109 = fadd float %v107, %v108
  store float %v109, ptr %s63
  %v110 = load float, ptr %s64
  %v111 = load float, ptr %s80
  %v112 = fadd float %v110, %v111
  store float %v112, ptr %s64
  %v113 = add nuw nsw i64 %i81, 256
  %v114 = icmp slt i64 %v113, %n1
  br i1 %v114, label %body81, label %done81
done81:
  %v115 = load float, ptr %s63
  %v116 = load float, ptr %s64
  %v117 = fadd float %v115, %v116
  %v118 = fdiv float %v117, %v24
  %v120 = icmp slt i64 0, %n1
  br i1 %v120, label %body119, label %done119
body119:
  %i119 = phi i64 [ 0, %done81 ], [ %v136, %body119 ]
  %v121 = getelementptr inbounds float, ptr %p0, i64 %i119
  %v122 = load float, ptr %v121, align 4
  %v123 = fsub float %v122, %v25
  %v124 = fmul float %v66, %v123
  %v125 = getelementptr inbounds float, ptr %p1, i64 %i119
  %v126 = load float, ptr %v125, align 4
  %v127 = fmul float %v27, %v126
  %v128 = getelementptr inbounds float, ptr %p2, i64 %i119
  %v129 = load float, ptr %v128, align 4
  %v130 = fmul float %v127, %v129
  %v131 = fmul float %v130, %v72
  %v132 = fmul float %v78, %v124
  %v133 = fadd float %v131, %v132
  %v134 = fadd float %v133, %v118
  %v135 = getelementptr inbounds float, ptr %p3, i64 %i119
  store float %v134, ptr %v135, align 4
  %v136 = add nuw nsw i64 %i119, 1
  %v137 = icmp slt i64 %v136, %n1
  br i1 %v137, label %body119, label %done119, !llvm.loop !9
done119:
  ret void
}
!0 = distinct !{!0, !1, !2}
!1 = !{!"llvm.loop.vectorize.enable", i1 true}
!2 = !{!"llvm.loop.interleave.count", i32 4}
!3 = distinct !{!3, !4, !5}
!4 = !{!"llvm.loop.vectorize.enable", i1 true}
!5 = !{!"llvm.loop.interleave.count", i32 4}
!6 = distinct !{!6, !7, !8}
!7 = !{!"llvm.loop.vectorize.enable", i1 true}
!8 = !{!"llvm.loop.interleave.count", i32 4}
!9 = distinct !{!9, !10, !11}
!10 = !{!"llvm.loop.vectorize.enable", i1 true}
!11 = !{!"llvm.loop.interleave.count", i32 4}
define void @kernel(i64 %lo, i64 %hi, ptr noalias %args, ptr noalias %buffers) nounwind {
entry:
  %v1 = load i64, ptr %args, align 8
  %v2 = getelementptr inbounds i64, ptr %args, i64 1
  %v3 = load i64, ptr %v2, align 8
  %v4 = getelementptr inbounds i64, ptr %args, i64 2
  %v5 = load i64, ptr %v4, align 8
  %v6 = getelementptr inbounds ptr, ptr %buffers, i64 %v5
  %v7 = load ptr, ptr %v6, align 8
  %v8 = getelementptr inbounds i64, ptr %args, i64 3
  %v9 = load i64, ptr %v8, align 8
  %v10 = getelementptr i8, ptr %v7, i64 %v9
  %v11 = getelementptr inbounds i64, ptr %args, i64 4
  %v12 = load i64, ptr %v11, align 8
  %v13 = getelementptr inbounds i64, ptr %args, i64 5
  %v14 = load i64, ptr %v13, align 8
  %v15 = getelementptr inbounds i64, ptr %args, i64 6
  %v16 = load i64, ptr %v15, align 8
  %v17 = getelementptr inbounds ptr, ptr %buffers, i64 %v16
  %v18 = load ptr, ptr %v17, align 8
  %v19 = getelementptr inbounds i64, ptr %args, i64 7
  %v20 = load i64, ptr %v19, align 8
  %v21 = getelementptr i8, ptr %v18, i64 %v20
  %v22 = getelementptr inbounds i64, ptr %args, i64 8
  %v23 = load i64, ptr %v22, align 8
  %v24 = getelementptr inbounds i64, ptr %args, i64 9
  %v25 = load i64, ptr %v24, align 8
  %v26 = getelementptr inbounds i64, ptr %args, i64 10
  %v27 = load i64, ptr %v26, align 8
  %v28 = getelementptr inbounds ptr, ptr %buffers, i64 %v27
  %v29 = load ptr, ptr %v28, align 8
  %v30 = getelementptr inbounds i64, ptr %args, i64 11
  %v31 = load i64, ptr %v30, align 8
  %v32 = getelementptr i8, ptr %v29, i64 %v31
  %v33 = getelementptr inbounds i64, ptr %args, i64 12
  %v34 = load i64, ptr %v33, align 8
  %v35 = getelementptr inbounds i64, ptr %args, i64 13
  %v36 = load i64, ptr %v35, align 8
  %v37 = getelementptr inbounds i64, ptr %args, i64 14
  %v38 = load i64, ptr %v37, align 8
  %v39 = getelementptr inbounds ptr, ptr %buffers, i64 %v38
  %v40 = load ptr, ptr %v39, align 8
  %v41 = getelementptr inbounds i64, ptr %args, i64 15
  %v42 = load i64, ptr %v41, align 8
  %v43 = getelementptr i8, ptr %v40, i64 %v42
  %v44 = getelementptr inbounds i64, ptr %args, i64 16
  %v45 = load i64, ptr %v44, align 8
  %v46 = getelementptr inbounds i64, ptr %args, i64 17
  %v47 = load i64, ptr %v46, align 8
  %v48 = getelementptr inbounds i64, ptr %args, i64 18
  %v49 = load i64, ptr %v48, align 8
  %v50 = getelementptr inbounds i64, ptr %args, i64 19
  %v51 = load i64, ptr %v50, align 8
  %v52 = getelementptr inbounds i64, ptr %args, i64 20
  %v53 = load i64, ptr %v52, align 8
  %v54 = getelementptr inbounds i64, ptr %args, i64 21
  %v55 = load i64, ptr %v54, align 8
  %v56 = getelementptr inbounds i64, ptr %args, i64 22
  %v57 = load i64, ptr %v56, align 8
  %v59 = icmp slt i64 %lo, %hi
  br i1 %v59, label %body58, label %done58
body58:
  %i58 = phi i64 [ %lo, %entry ], [ %v68, %body58 ]
  %v60 = mul nsw i64 %i58, %v12
  %v61 = getelementptr i8, ptr %v10, i64 %v60
  %v62 = mul nsw i64 %i58, %v23
  %v63 = getelementptr i8, ptr %v21, i64 %v62
  %v64 = mul nsw i64 %i58, %v34
  %v65 = getelementptr i8, ptr %v32, i64 %v64
  %v66 = mul nsw i64 %i58, %v45
  %v67 = getelementptr i8, ptr %v43, i64 %v66
  call void @body(i64 %v3, ptr %v61, ptr %v63, ptr %v65, ptr %v67, i64 %v14, i64 %v25, i64 %v36, i64 %v47, i64 %v49, i64 %v51, i64 %v53, i64 %v55, i64 %v57)
  %v68 = add nuw nsw i64 %i58, 1
  %v69 = icmp slt i64 %v68, %hi
  br i1 %v69, label %body58, label %done58
done58:
  ret void
}
