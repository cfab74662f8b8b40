; 1: row
define internal void @body(i64 %n1, ptr noalias %p0, ptr noalias %p1, ptr noalias %p2, i64 %s0_1, i64 %s1_1, i64 %s2_1) nounwind noinline {
entry:
  %s1 = alloca float, i64 1
  %s11 = alloca i1, i64 1
  store float 0xFFF0000000000000, ptr %s1
  %v3 = icmp slt i64 0, %n1
  br i1 %v3, label %body2, label %done2
body2:
  %i2 = phi i64 [ 0, %entry ], [ %v8, %body2 ]
  %v4 = getelementptr inbounds float, ptr %p0, i64 %i2
  %v5 = load float, ptr %v4, align 4
  %v6 = load float, ptr %s1
  %v7 = call nsz float @llvm.maximum.f32(float %v6, float %v5)
  store float %v7, ptr %s1
  %v8 = add nuw nsw i64 %i2, 1
  %v9 = icmp slt i64 %v8, %n1
  br i1 %v9, label %body2, label %done2, !llvm.loop !0
done2:
  %v10 = load float, ptr %s1
  store i1 false, ptr %s11
  %v13 = icmp slt i64 0, %n1
  br i1 %v13, label %body12, label %done12
body12:
  %i12 = phi i64 [ 0, %done2 ], [ %v19, %body12 ]
  %v14 = getelementptr inbounds float, ptr %p0, i64 %i12
  %v15 = load float, ptr %v14, align 4
  %v16 = fcmp oeq float %v15, %v10
  %v17 = load i1, ptr %s11
  %v18 = or i1 %v17, %v16
  store i1 %v18, ptr %s11
  %v19 = add nuw nsw i64 %i12, 1
  %v20 = icmp slt i64 %v19, %n1
  br i1 %v20, label %body12, label %done12, !llvm.loop !3
done12:
  %v21 = load i1, ptr %s11
  store float %v10, ptr %p1, align 4
  %v22 = zext i1 %v21 to i8
  store i8 %v22, ptr %p2, align 1
  ret void
}
!0 = distinct !{!0, !1, !2}
!1 = !{!"llvm.loop.vectorize.enable", i1 true}
!2 = !{!"llvm.loop.interleave.count", i32 4}
!3 = distinct !{!3, !4, !5}
!4 = !{!"llvm.loop.vectorize.enable", i1 true}
!5 = !{!"llvm.loop.interleave.count", i32 4}
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
  %v38 = icmp slt i64 %lo, %hi
  br i1 %v38, label %body37, label %done37
body37:
  %i37 = phi i64 [ %lo, %entry ], [ %v45, %body37 ]
  %v39 = mul nsw i64 %i37, %v12
  %v40 = getelementptr i8, ptr %v10, i64 %v39
  %v41 = mul nsw i64 %i37, %v23
  %v42 = getelementptr i8, ptr %v21, i64 %v41
  %v43 = mul nsw i64 %i37, %v34
  %v44 = getelementptr i8, ptr %v32, i64 %v43
  call void @body(i64 %v3, ptr %v40, ptr %v42, ptr %v44, i64 %v14, i64 %v25, i64 %v36)
  %v45 = add nuw nsw i64 %i37, 1
  %v46 = icmp slt i64 %v45, %hi
  br i1 %v46, label %body37, label %done37
done37:
  ret void
}
