; 1: row
define internal void @body(i64 %n1, ptr noalias %p0, ptr noalias %p1, ptr noalias %p2, ptr noalias %p3, i64 %s0_1, i64 %s1_1, i64 %s2_1, i64 %s3_1, i64 %c0, i64 %c1) nounwind noinline {
entry:
  %s1 = alloca float, i64 1
  %s11 = alloca float, i64 1
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
  %v12 = trunc i64 %c0 to i32
  %v13 = bitcast i32 %v12 to float
  %v14 = fdiv float %v10, %v13
  %v16 = icmp slt i64 0, %n1
  br i1 %v16, label %body15, label %done15
body15:
  %i15 = phi i64 [ 0, %done2 ], [ %v23, %body15 ]
  %v17 = getelementptr inbounds float, ptr %p0, i64 %i15
  %v18 = load float, ptr %v17, align 4
  %v19 = fsub float %v18, %v14
  %v20 = fmul float %v19, %v19
  %v21 = load float, ptr %s11
  %v22 = fadd reassoc float %v21, %v20
  store float %v22, ptr %s11
  %v23 = add nuw nsw i64 %i15, 1
  %v24 = icmp slt i64 %v23, %n1
  br i1 %v24, label %body15, label %done15, !llvm.loop !3
done15:
  %v25 = load float, ptr %s11
  %v26 = fdiv float %v25, %v13
  %v27 = trunc i64 %c1 to i32
  %v28 = bitcast i32 %v27 to float
  %v29 = fadd float %v26, %v28
  %v30 = call float @llvm.sqrt.f32(float %v29)
  %v31 = fdiv float 0x3FF0000000000000, %v30
  %v33 = icmp slt i64 0, %n1
  br i1 %v33, label %body32, label %done32
body32:
  %i32 = phi i64 [ 0, %done15 ], [ %v45, %body32 ]
  %v34 = getelementptr inbounds float, ptr %p0, i64 %i32
  %v35 = load float, ptr %v34, align 4
  %v36 = fsub float %v35, %v14
  %v37 = fmul float %v36, %v31
  %v38 = getelementptr inbounds float, ptr %p1, i64 %i32
  %v39 = load float, ptr %v38, align 4
  %v40 = fmul float %v37, %v39
  %v41 = getelementptr inbounds float, ptr %p2, i64 %i32
  %v42 = load float, ptr %v41, align 4
  %v43 = fadd float %v40, %v42
  %v44 = getelementptr inbounds float, ptr %p3, i64 %i32
  store float %v43, ptr %v44, align 4
  %v45 = add nuw nsw i64 %i32, 1
  %v46 = icmp slt i64 %v45, %n1
  br i1 %v46, label %body32, label %done32, !llvm.loop !6
done32:
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
  %v53 = icmp slt i64 %lo, %hi
  br i1 %v53, label %body52, label %done52
body52:
  %i52 = phi i64 [ %lo, %entry ], [ %v62, %body52 ]
  %v54 = mul nsw i64 %i52, %v12
  %v55 = getelementptr i8, ptr %v10, i64 %v54
  %v56 = mul nsw i64 %i52, %v23
  %v57 = getelementptr i8, ptr %v21, i64 %v56
  %v58 = mul nsw i64 %i52, %v34
  %v59 = getelementptr i8, ptr %v32, i64 %v58
  %v60 = mul nsw i64 %i52, %v45
  %v61 = getelementptr i8, ptr %v43, i64 %v60
  call void @body(i64 %v3, ptr %v55, ptr %v57, ptr %v59, ptr %v61, i64 %v14, i64 %v25, i64 %v36, i64 %v47, i64 %v49, i64 %v51)
  %v62 = add nuw nsw i64 %i52, 1
  %v63 = icmp slt i64 %v62, %hi
  br i1 %v63, label %body52, label %done52
done52:
  ret void
}
