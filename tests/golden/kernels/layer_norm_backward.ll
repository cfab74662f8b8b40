; 1: row
define internal void @body(i64 %n1, ptr noalias %p0, ptr noalias %p1, ptr noalias %p2, ptr noalias %p3, i64 %s0_1, i64 %s1_1, i64 %s2_1, i64 %s3_1, i64 %c0, i64 %c1, i64 %c2, i64 %c3, i64 %c4) nounwind noinline {
entry:
  %s1 = alloca float, i64 1
  %s11 = alloca float, i64 1
  %s12 = alloca float, i64 1
  %s39 = alloca float, i64 1
  %s40 = alloca float, i64 1
  store float 0x8000000000000000, ptr %s1
  %v3 = icmp slt i64 0, %n1
  br i1 %v3, label %body2, label %done2
body2:
  %i2 = phi i64 [ 0, %entry ], [ %v8, %body2 ]
  %v4 = getelementptr inbounds float, ptr %p0, i64 %i2
  %v5 = load float, ptr %v4, align 4
  %v6 = load float, ptr %s1
  %v7 = fadd reassoc float %v6, %v5
  store float %v7, ptr %s1
  %v8 = add nuw nsw i64 %i2, 1
  %v9 = icmp slt i64 %v8, %n1
  br i1 %v9, label %body2, label %done2, !llvm.loop !0
done2:
  %v10 = load float, ptr %s1
  store float 0x8000000000000000, ptr %s11
  store float 0x8000000000000000, ptr %s12
  %v13 = trunc i64 %c0 to i32
  %v14 = bitcast i32 %v13 to float
  %v15 = fdiv float %v10, %v14
  %v16 = trunc i64 %c4 to i32
  %v17 = bitcast i32 %v16 to float
  %v19 = icmp slt i64 0, %n1
  br i1 %v19, label %body18, label %done18
body18:
  %i18 = phi i64 [ 0, %done2 ], [ %v35, %body18 ]
  %v20 = getelementptr inbounds float, ptr %p0, i64 %i18
  %v21 = load float, ptr %v20, align 4
  %v22 = fsub float %v21, %v15
  %v23 = fmul float %v22, %v22
  %v24 = getelementptr inbounds float, ptr %p1, i64 %i18
  %v25 = load float, ptr %v24, align 4
  %v26 = fmul float %v17, %v25
  %v27 = getelementptr inbounds float, ptr %p2, i64 %i18
  %v28 = load float, ptr %v27, align 4
  %v29 = fmul float %v26, %v28
  %v30 = fmul float %v29, %v22
  %v31 = load float, ptr %s11
  %v32 = fadd reassoc float %v31, %v23
  store float %v32, ptr %s11
  %v33 = load float, ptr %s12
  %v34 = fadd reassoc float %v33, %v30
  store float %v34, ptr %s12
  %v35 = add nuw nsw i64 %i18, 1
  %v36 = icmp slt i64 %v35, %n1
  br i1 %v36, label %body18, label %done18, !llvm.loop !3
done18:
  %v37 = load float, ptr %s11
  %v38 = load float, ptr %s12
  store float 0x8000000000000000, ptr %s39
  store float 0x8000000000000000, ptr %s40
  %v41 = trunc i64 %c1 to i32
  %v42 = bitcast i32 %v41 to float
  %v43 = fdiv float %v37, %v14
  %v44 = trunc i64 %c2 to i32
  %v45 = bitcast i32 %v44 to float
  %v46 = fadd float %v43, %v45
  %v47 = call float @llvm.sqrt.f32(float %v46)
  %v48 = fdiv float 0x3FF0000000000000, %v47
  %v49 = fdiv float %v48, %v46
  %v50 = trunc i64 %c3 to i32
  %v51 = bitcast i32 %v50 to float
  %v52 = fmul float %v51, %v49
  %v53 = fmul float %v38, %v52
  %v54 = fdiv float %v53, %v14
  %v56 = icmp slt i64 0, %n1
  br i1 %v56, label %body55, label %done55
body55:
  %i55 = phi i64 [ 0, %done18 ], [ %v75, %body55 ]
  %v57 = getelementptr inbounds float, ptr %p0, i64 %i55
  %v58 = load float, ptr %v57, align 4
  %v59 = fsub float %v58, %v15
  %v60 = fmul float %v42, %v59
  %v61 = getelementptr inbounds float, ptr %p1, i64 %i55
  %v62 = load float, ptr %v61, align 4
  %v63 = fmul float %v17, %v62
  %v64 = getelementptr inbounds float, ptr %p2, i64 %i55
  %v65 = load float, ptr %v64, align 4
  %v66 = fmul float %v63, %v65
  %v67 = fmul float %v66, %v48
  %v68 = fneg float %v67
  %v69 = fmul float %v54, %v60
  %v70 = fneg float %v69
  %v71 = load float, ptr %s39
  %v72 = fadd reassoc float %v71, %v68
  store float %v72, ptr %s39
  %v73 = load float, ptr %s40
  %v74 = fadd reassoc float %v73, %v70
  store float %v74, ptr %s40
  %v75 = add nuw nsw i64 %i55, 1
  %v76 = icmp slt i64 %v75, %n1
  br i1 %v76, label %body55, label %done55, !llvm.loop !6
done55:
  %v77 = load float, ptr %s39
  %v78 = load float, ptr %s40
  %v79 = fadd float %v77, %v78
  %v80 = fdiv float %v79, %v14
  %v82 = icmp slt i64 0, %n1
  br i1 %v82, label %body81, label %done81
body81:
  %i81 = phi i64 [ 0, %done55 ], [ %v98, %body81 ]
  %v83 = getelementptr inbounds float, ptr %p0, i64 %i81
  %v84 = load float, ptr %v83, align 4
  %v85 = fsub float %v84, %v15
  %v86 = fmul float %v42, %v85
  %v87 = getelementptr inbounds float, ptr %p1, i64 %i81
  %v88 = load float, ptr %v87, align 4
  %v89 = fmul float %v17, %v88
  %v90 = getelementptr inbounds float, ptr %p2, i64 %i81
  %v91 = load float, ptr %v90, align 4
  %v92 = fmul float %v89, %v91
  %v93 = fmul float %v92, %v48
  %v94 = fmul float %v54, %v86
  %v95 = fadd float %v93, %v94
  %v96 = fadd float %v95, %v80
  %v97 = getelementptr inbounds float, ptr %p3, i64 %i81
  store float %v96, ptr %v97, align 4
  %v98 = add nuw nsw i64 %i81, 1
  %v99 = icmp slt i64 %v98, %n1
  br i1 %v99, label %body81, label %done81, !llvm.loop !9
done81:
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
